package kube

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// wireMessage is a protobuf message that is read from a stream field by field. Content that no visitor reads is discarded, so memory
// does not depend on the size of the message.
type wireMessage struct {
	stream *bufio.Reader
	// left is the number of bytes of the message that are not read yet.
	left int64
}

var errWire = errors.New("malformed protobuf")

// fields calls visit with the number and the content of each field that is a string, bytes or a message, until the message ends.
// Content that visit does not read is skipped. It is valid until visit returns.
func (m *wireMessage) fields(visit func(number int, content *wireMessage) error) error {
	for m.left > 0 {
		if err := m.field(visit); err != nil {
			return err
		}
	}
	return nil
}

// field reads one field, for fields.
func (m *wireMessage) field(visit func(number int, content *wireMessage) error) error {
	tag, err := m.varint()
	if err != nil {
		return err
	}
	switch tag & 7 {
	case 0:
		_, err = m.varint()
		return err
	case 1:
		return m.skip(8)
	case 2:
		return m.content(int(tag>>3&math.MaxInt32), visit)
	case 5:
		return m.skip(4)
	default:
		return fmt.Errorf("%w: wire type %d", errWire, tag&7)
	}
}

// descend calls visit with the content of each field at a path of field numbers.
func (m *wireMessage) descend(visit func(content *wireMessage) error, path ...int) error {
	if len(path) == 0 {
		return visit(m)
	}
	return m.fields(func(number int, content *wireMessage) error {
		if number != path[0] {
			return nil
		}
		return content.descend(visit, path[1:]...)
	})
}

// content visits a length-delimited field.
func (m *wireMessage) content(number int, visit func(int, *wireMessage) error) error {
	length, err := m.varint()
	if err != nil {
		return err
	}
	if length > uint64(m.left) { //nolint:gosec // left is never negative
		return fmt.Errorf("%w: a field is longer than its message", errWire)
	}
	inner := &wireMessage{stream: m.stream, left: int64(length)} //nolint:gosec // it is at most left
	m.left -= inner.left
	if err := visit(number, inner); err != nil {
		return err
	}
	return inner.skip(inner.left)
}

// varint reads one variable-length integer.
func (m *wireMessage) varint() (uint64, error) {
	number, err := binary.ReadUvarint(m)
	if err != nil {
		return 0, truncated(err)
	}
	return number, nil
}

// ReadByte reads a byte of the message.
func (m *wireMessage) ReadByte() (byte, error) {
	if m.left < 1 {
		return 0, io.ErrUnexpectedEOF
	}
	m.left--
	return m.stream.ReadByte()
}

// skip discards n bytes.
func (m *wireMessage) skip(n int64) error {
	if n > m.left {
		return io.ErrUnexpectedEOF
	}
	m.left -= n
	for n > 0 {
		skipped, err := m.stream.Discard(int(min(n, math.MaxInt32)))
		if err != nil {
			return truncated(err)
		}
		n -= int64(skipped)
	}
	return nil
}

// all reads the rest of a message, which must not be longer than limit.
func (m *wireMessage) all(limit int64) ([]byte, error) {
	if m.left > limit {
		return nil, fmt.Errorf("%w: a field of %d bytes, expected at most %d", errWire, m.left, limit)
	}
	content := make([]byte, m.left)
	m.left = 0
	if _, err := io.ReadFull(m.stream, content); err != nil {
		return nil, truncated(err)
	}
	return content, nil
}

// truncated turns the end of a stream within a message into io.ErrUnexpectedEOF.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
