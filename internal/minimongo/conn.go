package minimongo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A conn answers the commands of one connection one after the other.
type conn struct {
	server  *Server
	net     net.Conn
	id      int32
	replies int32
	buf     []byte
}

func (c *conn) serve() {
	s := c.server
	defer func() {
		c.net.Close()
		s.mu.Lock()
		delete(s.conns, c.net)
		s.mu.Unlock()
		s.wg.Done()
	}()
	in := bufio.NewReaderSize(c.net, 64<<10)
	for {
		m, err := readMessage(in)
		if err != nil {
			if err != io.EOF && !errors.Is(err, net.ErrClosed) {
				s.log.Debug("minimongo: connection ends", "conn", c.id, "err", err)
			}
			return
		}
		if !c.answer(m) {
			return
		}
	}
}

// answer carries out one command; false ends the connection.
func (c *conn) answer(m *message) bool {
	s := c.server
	r := &request{ctx: s.ctx, body: m.body, sequences: m.sequences, conn: c.id}
	it := elementsOf(m.body)
	name, _, _ := it.next()
	r.name = string(name)
	if v, ok := field(m.body, "$db"); ok && v.Type == tString {
		r.db = string(str(v))
	}
	fault := s.faults.take(r.name, r.db, bson.Raw(m.body))
	drop, failure := fault.Before.run(s.ctx, c.net)
	if drop {
		return false
	}
	out := m.startReply(c.buf)
	head := len(out)
	err := error(failure)
	if failure == nil {
		out, err = s.carryOut(r, out)
	}
	if drop, failure = fault.After.run(s.ctx, c.net); drop {
		return false
	}
	if failure != nil {
		err = failure
	}
	if err != nil {
		out = m.startReply(c.buf)[:head]
		e := asError(err)
		if e.Code == codeInternalError {
			s.log.Error("minimongo: command failed", "command", r.name, "db", r.db, "err", err)
		}
		out = bsoncore.AppendDoubleElement(out, "ok", 0)
		out = e.appendFields(out, "errmsg")
		out = bsoncore.AppendStringElement(out, "codeName", codeName(e.Code))
	} else {
		out = bsoncore.AppendDoubleElement(out, "ok", 1)
	}
	if m.noReply {
		return true
	}
	c.replies++
	out = m.endReply(out, c.replies)
	_, err = c.net.Write(out)
	if c.buf = out[:0]; cap(c.buf) > 1<<20 {
		c.buf = nil
	}
	return err == nil
}

type handler func(s *Server, r *request, dst []byte) ([]byte, error)

// handlerOf is nil for a command that minimongo does not have.
func handlerOf(command string) handler {
	switch command {
	case "hello", "isMaster", "ismaster":
		return (*Server).hello
	case "ping":
		return (*Server).ping
	case "buildInfo", "buildinfo":
		return (*Server).buildInfo
	case "endSessions":
		return (*Server).endSessions
	case "insert":
		return (*Server).insert
	case "update":
		return (*Server).update
	case "delete":
		return (*Server).delete
	case "findAndModify", "findandmodify":
		return (*Server).findAndModify
	case "find":
		return (*Server).find
	case "getMore":
		return (*Server).getMore
	case "killCursors":
		return (*Server).killCursors
	case "aggregate":
		return (*Server).aggregate
	case "count":
		return (*Server).count
	case "explain":
		return (*Server).explain
	case "createIndexes":
		return (*Server).createIndexes
	case "dropIndexes":
		return (*Server).dropIndexes
	case "listIndexes":
		return (*Server).listIndexes
	case "create":
		return (*Server).create
	case "drop":
		return (*Server).dropCollection
	case "dropDatabase":
		return (*Server).dropDatabase
	case "listCollections":
		return (*Server).listCollections
	case "listDatabases":
		return (*Server).listDatabases
	}
	return nil
}

// carryOut keeps a mistake of ours in one command from ending the whole process.
func (s *Server) carryOut(r *request, dst []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("minimongo: panic in %s: %v", r.name, p)
			s.log.Error("minimongo: panic", "command", r.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return s.dispatch(r, dst)
}

// dispatch appends the fields of the answer to dst.
func (s *Server) dispatch(r *request, dst []byte) ([]byte, error) {
	h := handlerOf(r.name)
	if h == nil {
		return nil, errorf(codeCommandNotFound, "no such command: '%s' (minimongo has only what postbit uses)", r.name)
	}
	if r.db == "" {
		return nil, errorf(40414, "BSON field '%s.$db' is missing but a required field", r.name)
	}
	limit, err := r.deadline()
	if err != nil {
		return nil, err
	}
	if limit > 0 && r.name != "getMore" {
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		defer cancel()
		r.ctx = ctx
	}
	return h(s, r, dst)
}

func (s *Server) ping(r *request, dst []byte) ([]byte, error) {
	return dst, r.each(func(string, value) (bool, error) { return false, nil })
}

// endSessions: sessions hold nothing here.
func (s *Server) endSessions(_ *request, dst []byte) ([]byte, error) { return dst, nil }

// version is the MongoDB whose behaviour is followed; wireVersion goes with it.
const (
	version     = "7.0.0"
	wireVersion = 21
)

func (s *Server) buildInfo(_ *request, dst []byte) ([]byte, error) {
	dst = bsoncore.AppendStringElement(dst, "version", version)
	dst = bsoncore.BuildArrayElement(dst, "versionArray", int32Value(7), int32Value(0), int32Value(0), int32Value(0))
	dst = bsoncore.AppendStringElement(dst, "gitVersion", "minimongo")
	dst = bsoncore.BuildArrayElement(dst, "modules", stringValue("minimongo"))
	return bsoncore.AppendInt32Element(dst, "maxBsonObjectSize", maxDocument), nil
}

// hello describes a standalone server. What a client says about itself is of no interest, but it cannot log in.
func (s *Server) hello(r *request, dst []byte) ([]byte, error) {
	if _, ok := field(r.body, "speculativeAuthenticate"); ok {
		return nil, errorf(codeCommandNotFound, "minimongo has no users: connect without a name and a password")
	}
	primary := "isWritablePrimary"
	if r.name != "hello" {
		primary = "ismaster"
	}
	dst = bsoncore.AppendBooleanElement(dst, "helloOk", true)
	dst = bsoncore.AppendBooleanElement(dst, primary, true)
	dst = bsoncore.AppendInt32Element(dst, "maxBsonObjectSize", maxDocument)
	dst = bsoncore.AppendInt32Element(dst, "maxMessageSizeBytes", maxMessage)
	dst = bsoncore.AppendInt32Element(dst, "maxWriteBatchSize", 100_000)
	dst = bsoncore.AppendDateTimeElement(dst, "localTime", s.cfg.Now().UnixMilli())
	dst = bsoncore.AppendInt32Element(dst, "logicalSessionTimeoutMinutes", 30)
	dst = bsoncore.AppendInt32Element(dst, "connectionId", r.conn)
	dst = bsoncore.AppendInt32Element(dst, "minWireVersion", 0)
	dst = bsoncore.AppendInt32Element(dst, "maxWireVersion", wireVersion)
	return bsoncore.AppendBooleanElement(dst, "readOnly", false), nil
}
