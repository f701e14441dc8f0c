package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/emersion/go-smtp"
)

// conn is one SMTP session.
type conn struct {
	pool    *pool
	client  *smtp.Client
	wire    *wire
	utf8    bool
	direct  bool // wire is above TLS, or there is none
	maxSize int  // octets; 0: the server doesn't say

	sent     int  // mails begun
	broken   bool // nothing more can be sent over it
	released bool
	retired  bool      // closed, and its place in the pool given up, before it was released
	since    time.Time // when it went into the pool
}

func (c *conn) SupportsUTF8() bool { return c.utf8 }

func (c *conn) Usable() bool { return !c.broken && c.sent < c.pool.s.maxMessages }

func (c *conn) Release() {
	if !c.released {
		c.released = true
		c.pool.release(c)
	}
}

// Send speaks MAIL, RCPT, DATA, each after the reply to the one before. The exact point where a connection breaks decides what may be done about this
// mail, see wire.
func (c *conn) Send(ctx context.Context, from, to string, utf8 bool, msg []byte) Reply {
	r := c.send(ctx, from, to, utf8, msg)
	if !c.Usable() {
		c.pool.retire(c) // at once, so that its place is free for the next one
	}
	return r
}

func (c *conn) send(ctx context.Context, from, to string, utf8 bool, msg []byte) Reply {
	switch {
	case ctx.Err() != nil:
		return Reply{Class: Cut, Err: ctx.Err(), Text: "stopped before it was begun"}
	case !c.Usable() || c.released:
		return cut(errors.New("the connection is used up"))
	case utf8 && !c.utf8:
		return Reply{Class: Failed, Text: "the server does not offer SMTPUTF8, which this address needs"}
	case c.maxSize > 0 && len(msg) > c.maxSize:
		return Reply{Class: Failed, Code: 552, Enhanced: "5.3.4", Text: fmt.Sprintf("the message has %d octets, the server takes %d", len(msg), c.maxSize)}
	case bytes.Count(msg, []byte("\r")) != bytes.Count(msg, []byte("\r\n")):
		return Reply{Class: Failed, Code: 554, Enhanced: "5.6.0", Text: "the message has a CR alone, which some servers take for a line end"}
	}
	c.sent++
	if err := c.client.Mail(from, &smtp.MailOptions{UTF8: utf8}); err != nil {
		return c.refused(atMail, err)
	}
	if err := c.client.Rcpt(to, nil); err != nil {
		return c.refused(atRcpt, err)
	}
	data, err := c.client.Data()
	if err != nil {
		return c.refused(atData, err)
	}
	c.wire.writeBy(c.pool.s.dataTimeout)
	if err := c.message(data, msg); err != nil {
		// data must not be closed now: that would put the end of the message behind a part of it.
		return c.refused(atData, err)
	}
	c.wire.arm()
	resp, err := data.CloseWithResponse()
	if err == nil {
		return classify(atEnd, 250, "", resp.StatusText)
	}
	return c.refused(atEnd, err)
}

// message writes all but the end. Closing data then writes CRLF.CRLF, or the part of it that is missing.
//
// The client's own way takes each byte through several calls (25 µs for a mail of 6 kB, as much as all the rest of a dialogue without its system calls), and
// takes two or three writes. Where we can reach the bytes behind it, the message goes out with its end in one.
func (c *conn) message(data *smtp.DataCommand, msg []byte) error {
	if c.direct {
		if b, ok := transparent(msg); ok {
			c.wire.queue(b)
			return nil
		}
	}
	_, err := data.Write(msg)
	return err
}

// refused turns an error of the dialogue into a reply and leaves the connection ready for the next mail, or broken.
func (c *conn) refused(at stage, err error) Reply {
	code, enhanced, text, answered := smtpReply(err)
	if !answered {
		c.broken = true
		if at == atEnd && c.wire.sent() {
			return Reply{Class: Unconfirmed, Err: err, Text: oneLine("no reply after the end of the message: "+err.Error(), maxReply)}
		}
		return cut(err)
	}
	r := classify(at, code, enhanced, text)
	switch {
	case r.Err != nil, code == 421: // RFC 5321 section 3.8: the server closes behind a 421
		c.broken = true
	case at == atRcpt || at == atData:
		// The transaction that MAIL began is still open, and the next MAIL would be refused with 503.
		c.broken = c.client.Reset() != nil
	}
	return r
}

func cut(err error) Reply {
	return Reply{Class: Cut, Err: err, Text: oneLine("cut before the end of the message: "+err.Error(), maxReply)}
}
