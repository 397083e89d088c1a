package grpcread

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// prefix is the length of the header of a message: a flag for compression, and the message's length in 4 bytes, big-endian.
	prefix = 5
	// window limits the unread data of an answer, and buffered is the size of the part that is decoded at a time.
	window, buffered = 256 << 10, 32 << 10
)

// Client calls a gRPC server.
type Client struct {
	// Socket is the path of the server's socket.
	Socket string
	// Quiet is the longest time without data from the server, Longest the time limit of a call.
	Quiet, Longest time.Duration
}

// Call calls a method, such as "/v1.PodResourcesLister/List", with an empty request, and passes the fields of the answer to visit while the
// answer arrives. After an error, discard the fields that were passed. Call returns the error of visit, a gRPC status, or the reason why
// the answer could not be read.
func (c Client) Call(ctx context.Context, method string, visit func(Field) error) error {
	return c.limit(ctx, func(ctx context.Context, more func()) error {
		return c.post(ctx, method, func(response *http.Response) error {
			return read(response, bufio.NewReaderSize(progress{response.Body, more}, buffered), visit)
		})
	})
}

// limit runs call and ends it at the client's limits. call must call more whenever the server has sent data.
func (c Client) limit(ctx context.Context, call func(ctx context.Context, more func()) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, c.Longest, fmt.Errorf("no complete response within %s", c.Longest))
	defer stop()
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	quiet := time.AfterFunc(c.Quiet, func() { silent(fmt.Errorf("no data received for %s", c.Quiet)) })
	defer quiet.Stop()
	err := call(ctx, func() { quiet.Reset(c.Quiet) })
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// post sends an empty message over a connection of its own, as HTTP/2 without TLS.
func (c Client) post(ctx context.Context, method string, read func(*http.Response) error) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // the transport keeps a connection that it opened for a call that has ended
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols, DisableCompression: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return connection, nil },
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+method, bytes.NewReader(make([]byte, prefix)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // nothing follows the status
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not a gRPC server: HTTP status %s", response.Status)
	}
	return read(response)
}

// read reads the message and the status of an answer.
func read(response *http.Response, in *bufio.Reader, visit func(Field) error) error {
	var head [prefix]byte
	_, err := io.ReadFull(in, head[:])
	if errors.Is(err, io.EOF) { // no message: the status is in the trailer, or in the header if there is no body
		return cmp.Or(statusOf(response.Header, response.Trailer), io.ErrUnexpectedEOF)
	}
	if err != nil {
		return err
	}
	if head[0] != 0 {
		return errors.New("the server sent a compressed message, which is not supported")
	}
	m := message{stream: &stream{Reader: in}, end: uint64(binary.BigEndian.Uint32(head[1:]))}
	if err := m.each(visit); err != nil {
		return err
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.Join(err, errors.New("the server sent data after the message"))
	}
	return statusOf(response.Trailer)
}

// statusOf returns the error of the first header with a status.
func statusOf(headers ...http.Header) error {
	for _, header := range headers {
		text := header.Get("Grpc-Status")
		if text == "" {
			continue
		}
		code, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("the server sent the gRPC status %q", text)
		}
		message, err := url.PathUnescape(header.Get("Grpc-Message"))
		if err != nil {
			message = header.Get("Grpc-Message")
		}
		return status.Error(codes.Code(code), message)
	}
	return errors.New("the server sent no gRPC status")
}

// progress calls more whenever the server has sent data.
type progress struct {
	io.Reader

	more func()
}

func (p progress) Read(into []byte) (int, error) {
	n, err := p.Reader.Read(into)
	if n > 0 {
		p.more()
	}
	return n, err
}
