package minimongo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// The wire protocol: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
	flagExhaust    = 1 << 16

	headerSize = 16
	maxMessage = 48_000_000
)

// A message is one request as read from a connection.
type message struct {
	id        int32
	legacy    bool // OP_QUERY, which drivers send for their first hello only
	noReply   bool // the client wants no answer
	body      document
	sequences map[string][]document
}

var errMalformed = errors.New("malformed message")

// readMessage returns io.EOF where the stream ends between two messages.
func readMessage(r io.Reader) (*message, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	length := int(int32(binary.LittleEndian.Uint32(h[:])))
	if length < headerSize || length > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errMalformed, length)
	}
	// The client says how long it is; memory is only taken for what really comes.
	body := make([]byte, min(length-headerSize, 1<<16))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, unexpected(err)
	}
	if rest := length - headerSize - len(body); rest > 0 {
		buf := bytes.NewBuffer(body)
		if rest < 1<<20 {
			buf.Grow(rest + bytes.MinRead)
		}
		if _, err := io.CopyN(buf, r, int64(rest)); err != nil {
			return nil, unexpected(err)
		}
		body = buf.Bytes()
	}
	m := &message{id: int32(binary.LittleEndian.Uint32(h[4:]))}
	switch op := binary.LittleEndian.Uint32(h[12:]); op {
	case opMsg:
		return m, m.parseMsg(body)
	case opQuery:
		return m, m.parseQuery(body)
	default:
		return nil, fmt.Errorf("%w: operation %d is not known", errMalformed, op)
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (m *message) parseMsg(b []byte) error {
	if len(b) < 4 {
		return fmt.Errorf("%w: no flags", errMalformed)
	}
	flags := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if flags&flagChecksum != 0 {
		return fmt.Errorf("%w: minimongo takes no checksums", errMalformed)
	}
	if unknown := flags & 0xffff &^ flagMoreToCome; unknown != 0 {
		return fmt.Errorf("%w: flags %x", errMalformed, unknown)
	}
	m.noReply = flags&flagMoreToCome != 0
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		section, ok := cut(b)
		if !ok {
			return fmt.Errorf("%w: section of kind %d", errMalformed, kind)
		}
		b = b[len(section):]
		switch {
		case kind == 0 && m.body == nil:
			m.body = section
		case kind == 1:
			if err := m.addSequence(section[4:]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: section of kind %d", errMalformed, kind)
		}
	}
	if m.body == nil {
		return fmt.Errorf("%w: no body", errMalformed)
	}
	if err := validate(m.body, 0); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// cut takes what a length at its front says.
func cut(b []byte) ([]byte, bool) {
	if len(b) < 4 {
		return nil, false
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < 5 || n > len(b) {
		return nil, false
	}
	return b[:n:n], true
}

func (m *message) addSequence(b []byte) error {
	name, b, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return fmt.Errorf("%w: document sequence without a name", errMalformed)
	}
	if _, twice := m.sequences[string(name)]; twice {
		return fmt.Errorf("%w: two document sequences %q", errMalformed, name)
	}
	docs := []document{}
	for len(b) > 0 {
		doc, ok := cut(b)
		if !ok {
			return fmt.Errorf("%w: document %d of sequence %q", errMalformed, len(docs), name)
		}
		if err := validate(doc, 0); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		docs = append(docs, doc)
		b = b[len(doc):]
	}
	if m.sequences == nil {
		m.sequences = map[string][]document{}
	}
	m.sequences[string(name)] = docs
	return nil
}

// parseQuery reads flags, collection name, two numbers and the command.
func (m *message) parseQuery(b []byte) error {
	m.legacy = true
	if len(b) < 4 {
		return fmt.Errorf("%w: no flags", errMalformed)
	}
	name, b, ok := bytes.Cut(b[4:], []byte{0})
	if !ok || !bytes.HasSuffix(name, []byte(".$cmd")) || len(b) < 8 {
		return fmt.Errorf("%w: OP_QUERY is for commands only", errMalformed)
	}
	doc, ok := cut(b[8:])
	if !ok {
		return fmt.Errorf("%w: OP_QUERY without a document", errMalformed)
	}
	if err := validate(doc, 0); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	db, _, _ := bytes.Cut(name, []byte("."))
	m.body = doc
	if _, ok := field(doc, "$db"); !ok {
		m.body = bsoncore.BuildDocument(nil, doc[4:len(doc)-1], bsoncore.AppendStringElement(nil, "$db", string(db)))
	}
	return nil
}

// startReply leaves room for the header and begins the one document of an answer.
func (m *message) startReply(dst []byte) []byte {
	dst = append(dst[:0], make([]byte, headerSize)...)
	if m.legacy {
		dst = binary.LittleEndian.AppendUint32(dst, 8) // AwaitCapable
		dst = append(dst, make([]byte, 12)...)         // cursor id, starting from
		dst = binary.LittleEndian.AppendUint32(dst, 1) // number of documents
	} else {
		dst = append(dst, 0, 0, 0, 0, 0) // flags, section of kind 0
	}
	return append(dst, 0, 0, 0, 0) // length of the document
}

func (m *message) endReply(dst []byte, id int32) []byte {
	start, op := headerSize+5, uint32(opMsg)
	if m.legacy {
		start, op = headerSize+20, opReply
	}
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	binary.LittleEndian.PutUint32(dst, uint32(len(dst)))
	binary.LittleEndian.PutUint32(dst[4:], uint32(id))
	binary.LittleEndian.PutUint32(dst[8:], uint32(m.id))
	binary.LittleEndian.PutUint32(dst[12:], op)
	return dst
}
