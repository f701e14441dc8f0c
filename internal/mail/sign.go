package mail

import "context"

// signing is a transport that signs what goes over it: here a message has the bytes that it is sent with, whoever made it.
type signing struct {
	Transport
	signer *Signer
}

func (s *signing) Connect(ctx context.Context) (Conn, error) {
	c, err := s.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &signingConn{c, s.signer}, nil
}

type signingConn struct {
	Conn
	signer *Signer
}

// Send refuses a message that can't be signed, rather than sending it without a signature.
func (c *signingConn) Send(ctx context.Context, from, to string, utf8 bool, msg []byte) Reply {
	signed, err := c.signer.Sign(msg)
	if err != nil {
		return Reply{Class: Failed, Code: 554, Enhanced: "5.6.0", Text: oneLine(err.Error(), maxReply), Err: err}
	}
	return c.Conn.Send(ctx, from, to, utf8, signed)
}
