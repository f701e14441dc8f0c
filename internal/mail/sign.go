package mail

import (
	"context"

	"postbit/internal/clock"
)

// signing is a transport that signs what goes over it: here a message has the bytes that it is sent with, whoever made it.
type signing struct {
	Transport
	signer *Signer
	clk    *clock.Clock
}

func (s *signing) Connect(ctx context.Context) (Conn, error) {
	c, err := s.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &signingConn{c, s}, nil
}

type signingConn struct {
	Conn
	by *signing
}

// Send refuses a message that can't be signed, rather than sending it without a signature.
func (c *signingConn) Send(ctx context.Context, from, to string, utf8 bool, msg []byte) Reply {
	signed, err := c.by.signer.Sign(msg, c.by.clk.Now())
	if err != nil {
		return Reply{Class: Failed, Code: 554, Enhanced: "5.6.0", Text: oneLine(err.Error(), maxReply), Err: err}
	}
	return c.Conn.Send(ctx, from, to, utf8, signed)
}
