package mail

import (
	"net"
	"time"
)

// wire sees every byte that goes to the server and so knows whether the end of a message has been handed to the kernel. The SMTP
// client can't tell: its writer puts the last dot out in Close, and then waits for the reply in the same call. It lies below TLS: a record that wasn't written
// whole can't be read by the server, so the last write before the first read decides there, too.
type wire struct {
	net.Conn
	ending bool // between arm and the next read
	ended  bool // the last write since arm was complete
}

// arm is called before the end of a message is written.
func (w *wire) arm() { w.ending, w.ended = true, false }

// sent reports whether all that was written since arm has left: the server may have seen the end of the message.
func (w *wire) sent() bool { return w.ended }

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
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
