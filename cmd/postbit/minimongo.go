package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"postbit/internal/minimongo"
)

type minimongoCmd struct {
	Listen string `default:"127.0.0.1:27017" placeholder:"ADDR" help:"Address, or the path of a unix socket that ends in .sock; there is no access control."`
	Dir    string `placeholder:"DIR" help:"Data folder; in memory otherwise."`
}

func (minimongoCmd) Help() string {
	return `It knows the part of MongoDB that postbit uses, for development, tests and lists of up to some 100,000 users. Whoever reaches
the address can do everything.

Example:

    postbit minimongo --listen 127.0.0.1:27018 --dir ./data`
}

type minimongoJSON struct {
	URI string `json:"uri"`
}

func (c minimongoCmd) Run(ctx context.Context, a *app) (err error) {
	network := "tcp"
	if len(c.Listen) > 5 && c.Listen[len(c.Listen)-5:] == ".sock" {
		network = "unix"
	} else if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return usage("--listen: %q is no address; write host:port", c.Listen)
	}
	collectSeldom()
	s, err := minimongo.Open(minimongo.Config{Dir: c.Dir, Logger: a.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Listen(network, c.Listen); err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(minimongoJSON{s.URI()})
	} else {
		_, err = fmt.Fprintln(a.out, s.URI())
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
