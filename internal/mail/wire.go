package mail

import (
	"bytes"
	"net"
	"time"
)

// wire sees every byte that goes to the server and so knows whether the end of a message has been handed to the kernel. The SMTP
// client can't tell: its writer puts the last dot out in Close, and then waits for the reply in the same call.
//
// Under STARTTLS, which the client does by itself, the wire lies below TLS. A record that wasn't written whole can't be read by the server,
// so the last write before the first read decides there, too.
type wire struct {
	net.Conn
	ending bool // between arm and the next read
	ended  bool // the last write since arm was complete

	ahead []byte // goes out with the next write, before it
	buf   []byte
}

// arm is called before the end of a message is written.
func (w *wire) arm() { w.ending, w.ended = true, false }

// sent reports whether all that was written since arm has left: the server may have seen the end of the message.
func (w *wire) sent() bool { return w.ended }

// queue keeps b back until the next Write, which sends both at once. The caller leaves b alone until then.
func (w *wire) queue(b []byte) { w.ahead = b }

func (w *wire) Write(p []byte) (n int, err error) {
	if w.ahead == nil {
		n, err = w.Conn.Write(p)
	} else {
		w.buf = append(append(w.buf[:0], w.ahead...), p...)
		n, err = w.Conn.Write(w.buf)
		n, w.ahead = max(0, n-len(w.ahead)), nil
		if cap(w.buf) > 1<<20 {
			w.buf = nil
		}
	}
	if w.ending {
		w.ended = err == nil && n == len(p)
	}
	return n, err
}

func (w *wire) Read(p []byte) (int, error) {
	w.ending = false
	return w.Conn.Read(p)
}

// writeBy sets how long the following writes may take together; the SMTP client sets no limit while it sends a message.
func (w *wire) writeBy(d time.Duration) { w.Conn.SetWriteDeadline(time.Now().Add(d)) }

// transparent returns a message as it stands between DATA and the end of data, the CRLF before the final dot left out, with dots stuffed
// (RFC 5321 section 4.5.2). It refuses what has a CR or LF alone, which servers take for a line end or not, each in its own way.
func transparent(msg []byte) ([]byte, bool) {
	if !onlyCRLF(msg) {
		return nil, false
	}
	msg = bytes.TrimSuffix(msg, []byte("\r\n"))
	if bytes.HasPrefix(msg, []byte(".")) {
		msg = append([]byte("."), msg...)
	}
	if bytes.Contains(msg, []byte("\r\n.")) {
		msg = bytes.ReplaceAll(msg, []byte("\r\n."), []byte("\r\n.."))
	}
	return msg, true
}

// onlyCRLF reports whether no CR or LF stands alone.
func onlyCRLF(msg []byte) bool {
	lines := bytes.Count(msg, []byte("\r\n"))
	return lines == bytes.Count(msg, []byte("\n")) && lines == bytes.Count(msg, []byte("\r"))
}
