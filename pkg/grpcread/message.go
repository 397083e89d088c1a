package grpcread

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxText limits the bytes that Field.Text returns. Names in Kubernetes have at most 253.
const MaxText = 1024

// errShort says that a field does not fit into its message.
var errShort = errors.New("a field is longer than its message")

// stream is the source of fields. Fields refer to it by position, so they need no allocation.
type stream struct {
	*bufio.Reader

	// read is the number of bytes that were read.
	read uint64
}

// message is the part of a stream up to end that contains a protobuf message or a text.
type message struct {
	*stream

	end uint64
}

// Field is a field of a message. It is valid until the function that it was passed to returns.
type Field struct {
	// Number is the field's number in the definition of the message.
	Number int
	// Value is the value of a varint or of a number of fixed size, and 0 for other types.
	Value uint64
	// body holds the bytes of a text or of a message; it is empty for a number.
	body message
}

// Text returns the first MaxText bytes of a text. They are valid as long as the field.
func (f Field) Text() ([]byte, error) {
	if f.body.stream == nil {
		return nil, fmt.Errorf("field %d must be a string, got a number", f.Number)
	}
	text, err := f.body.Peek(int(min(f.body.left(), MaxText)))
	return text, cut(err)
}

// Each passes the fields of the message in this field to visit, in the order in which they were sent. It skips the part of a field that
// visit does not read. It returns the error of visit, or the reason why the message could not be read.
func (f Field) Each(visit func(Field) error) error {
	if f.body.stream == nil {
		return fmt.Errorf("field %d must be a message, got a number", f.Number)
	}
	return f.body.each(visit)
}

func (m message) each(visit func(Field) error) error {
	for m.left() > 0 {
		f, err := m.next()
		if err != nil {
			return fmt.Errorf("reading a protobuf message: %w", err)
		}
		if err := visit(f); err != nil {
			return err
		}
		if err := f.body.skip(); err != nil {
			return fmt.Errorf("reading field %d of a protobuf message: %w", f.Number, err)
		}
	}
	return nil
}

// left returns the number of unread bytes of the message.
func (m message) left() uint64 { return m.end - m.read }

// next reads the tag of a field, up to its bytes.
func (m message) next() (Field, error) {
	tag, err := m.varint()
	if err != nil {
		return Field{}, err
	}
	number, kind := protowire.DecodeTag(tag)
	f := Field{Number: int(number)}
	if number < protowire.MinValidNumber {
		return f, fmt.Errorf("invalid field tag %d", tag)
	}
	switch kind {
	case protowire.VarintType:
		f.Value, err = m.varint()
	case protowire.Fixed32Type:
		f.Value, err = m.fixed(4)
	case protowire.Fixed64Type:
		f.Value, err = m.fixed(8)
	case protowire.BytesType:
		f.body, err = m.inner()
	default:
		err = fmt.Errorf("field %d has wire type %d, which proto3 does not have", number, kind)
	}
	return f, err
}

// inner reads the length of a field and returns its bytes.
func (m message) inner() (message, error) {
	length, err := m.varint()
	if err != nil {
		return message{}, err
	}
	if length > m.left() {
		return message{}, errShort
	}
	return message{stream: m.stream, end: m.read + length}, nil
}

func (m message) varint() (value uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := m.byte()
		if err != nil {
			return 0, err
		}
		if value |= uint64(b&0x7f) << shift; b < 0x80 {
			return value, nil
		}
	}
	return 0, errors.New("a varint has more than 64 bits")
}

// fixed reads a little-endian number of that many bytes.
func (m message) fixed(size int) (value uint64, err error) {
	for i := range size {
		b, err := m.byte()
		if err != nil {
			return 0, err
		}
		value |= uint64(b) << (8 * i)
	}
	return value, nil
}

func (m message) byte() (byte, error) {
	if m.left() == 0 {
		return 0, errShort
	}
	b, err := m.ReadByte()
	if err == nil {
		m.read++
	}
	return b, cut(err)
}

// skip discards the unread rest of a message; the zero value has none.
func (m message) skip() error {
	for m.stream != nil && m.left() > 0 {
		n, err := m.Discard(int(min(m.left(), math.MaxInt32)))
		if m.read += uint64(n); err != nil { //nolint:gosec // a number of bytes
			return cut(err)
		}
	}
	return nil
}

// cut converts the end of the stream within a message to an error.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
