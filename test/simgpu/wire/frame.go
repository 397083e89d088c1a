// Package wire is the protocol between the simulated NVML library and its
// daemon: one request, one reply, over a unix stream socket. What NVML passes
// as C structs travels byte for byte; frame numbers are little endian.
//
//	request: u32 length, u64 session, u8+name, u8 argument count, then per
//	         argument u8 direction, u32 size, and the bytes unless it is Out
//	reply:   u32 length, i32 return code, u8 output count, then per output
//	         u32 size and the bytes
//
// length counts what follows it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the longest frame in bytes that either side accepts.
const MaxFrame = 1 << 20

// Direction is the direction of an argument.
type Direction uint8

// The directions, with the numbers that the C side uses.
const (
	In    Direction = 0
	Out   Direction = 1
	InOut Direction = 2
)

// Arg is one argument of a call.
type Arg struct {
	Direction Direction
	Size      int    // size of the caller's buffer for an output
	Bytes     []byte // bytes from the caller; nil for Out
}

// Request is one call.
type Request struct {
	Session uint64 // 0 before nvmlInit
	Name    string
	Args    []Arg
}

// Reply is the answer to a Request: one output for each Out and InOut argument, in order; an output may be shorter than the caller's
// buffer.
type Reply struct {
	Return  int32
	Outputs [][]byte
}

var errShort = errors.New("frame ends early")

// ReadRequest reads one request. io.EOF means that the peer disconnected between calls.
func ReadRequest(r io.Reader) (Request, error) {
	body, err := readFrame(r)
	if err != nil {
		return Request{}, err
	}
	c := cursor{rest: body}
	request := Request{Session: c.u64(), Name: string(c.take(int(c.u8())))}
	for range c.u8() {
		arg := Arg{Direction: Direction(c.u8()), Size: int(c.u32())}
		if arg.Direction != Out {
			arg.Bytes = c.take(arg.Size)
		}
		request.Args = append(request.Args, arg)
	}
	if c.err != nil {
		return Request{}, fmt.Errorf("reading request %q: %w", request.Name, c.err)
	}
	return request, nil
}

// WriteRequest writes one request.
func WriteRequest(w io.Writer, request Request) error {
	b := make([]byte, 4, 64)
	b = binary.LittleEndian.AppendUint64(b, request.Session)
	b = append(b, byte(len(request.Name)))
	b = append(b, request.Name...)
	b = append(b, byte(len(request.Args)))
	for _, arg := range request.Args {
		b = append(b, byte(arg.Direction))
		b = binary.LittleEndian.AppendUint32(b, uint32(arg.Size))
		if arg.Direction != Out {
			b = append(b, arg.Bytes...)
		}
	}
	return writeFrame(w, b)
}

// ReadReply reads one reply.
func ReadReply(r io.Reader) (Reply, error) {
	body, err := readFrame(r)
	if err != nil {
		return Reply{}, err
	}
	c := cursor{rest: body}
	reply := Reply{Return: int32(c.u32())}
	for range c.u8() {
		reply.Outputs = append(reply.Outputs, c.take(int(c.u32())))
	}
	if c.err != nil {
		return Reply{}, fmt.Errorf("reading reply: %w", c.err)
	}
	return reply, nil
}

// WriteReply writes one reply.
func WriteReply(w io.Writer, reply Reply) error {
	b := make([]byte, 4, 64)
	b = binary.LittleEndian.AppendUint32(b, uint32(reply.Return))
	b = append(b, byte(len(reply.Outputs)))
	for _, output := range reply.Outputs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(output)))
		b = append(b, output...)
	}
	return writeFrame(w, b)
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length > MaxFrame {
		return nil, fmt.Errorf("reading frame: %d bytes, at most %d are allowed", length, MaxFrame)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("reading frame of %d bytes: %w", length, err)
	}
	return body, nil
}

// writeFrame fills in the length, for which b has four bytes at its start.
func writeFrame(w io.Writer, b []byte) error {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	_, err := w.Write(b)
	return err
}

// cursor reads a frame's body; after the first error it returns zeros.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.err = errShort
		return nil
	}
	head := c.rest[:n]
	c.rest = c.rest[n:]
	return head
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
