// Package client calls the MPS service of a node, prism-mpsd: JSON over HTTP on a unix socket. It runs no programs.
//
// Every request may be repeated, so the client repeats requests without an answer while the service restarts. A restarting service leaves
// its socket: if there is no socket, no service has started since the node booted, and every request fails at once. The service and its
// client may be of different versions: both ignore unknown fields.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// restartTime is the time for which a request is repeated while the service does not answer.
	restartTime = 10 * time.Second
	// firstPause and longestPause limit the pause between two attempts.
	firstPause, longestPause = 5 * time.Millisecond, 250 * time.Millisecond
	// answerLimit limits the part of an answer that is read, in bytes.
	answerLimit = 4 << 20
)

// Client is a connection to the MPS service. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	socket string
	// restartTime is the time for which a request is repeated.
	restartTime time.Duration
}

// New returns a client of the service at a unix socket. The socket need not exist yet.
func New(socket string) *Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		// A kept connection may belong to a service that has exited meanwhile.
		DisableKeepAlives: true,
	}
	return &Client{http: &http.Client{Transport: transport}, socket: socket, restartTime: restartTime}
}

// Info returns the version and state of the service.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	err := c.do(ctx, http.MethodGet, "/v1", nil, &info)
	return info, err
}

// Probe asks for Info once and does not repeat a request without an answer. problem says why the service cannot start control daemons,
// empty if it can.
func (c *Client) Probe(ctx context.Context) (problem string, err error) {
	once := Client{http: c.http, socket: c.socket}
	info, err := once.Info(ctx)
	return info.Error, err
}

// Daemons lists the control daemons by id, running or not, and the revision of the list. With after > 0 it waits until the revision is
// greater, but for at most 30 s.
func (c *Client) Daemons(ctx context.Context, after int64) (daemons []gpu.MPSDaemon, revision int64, err error) {
	var list List
	err = c.do(ctx, http.MethodGet, "/v1/daemons?after="+strconv.FormatInt(after, 10), nil, &list)
	return list.Daemons, list.Revision, err
}

// Start starts a control daemon without a server. It keeps a running one.
func (c *Client) Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return c.put(ctx, id, "?server=false", spec)
}

// StartNew starts a control daemon, without a server, for a device that no claim uses. It replaces a daemon with other settings, or one
// that has accepted clients, together with its directory. A service of an earlier version keeps a running daemon and its directory; the
// answer contains the settings of the daemon. *gpu.MPSClientsError: clients are connected.
func (c *Client) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return c.put(ctx, id, "?server=false&unused=true", spec)
}

// Ensure returns when the control daemon accepts clients. If the driver supports one server for all users, this server runs, too. A running
// daemon keeps its spec, which is in the answer. A daemon of a replaced driver is started again if it has no clients.
func (c *Client) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return c.put(ctx, id, "", spec)
}

// RestoreLimits sets the limits of a running control daemon and of its servers to the limits of the spec, and reads them back. Connected
// clients keep their limits.
func (c *Client) RestoreLimits(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) error {
	_, err := c.put(ctx, id, "?limits=restore", spec)
	return err
}

func (c *Client) put(ctx context.Context, id gpu.MPSDaemonID, query string, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	var daemon gpu.MPSDaemon
	err := c.do(ctx, http.MethodPut, pathOf(id)+query, spec, &daemon)
	return daemon, err
}

// Limits reads the limits of a running control daemon and of its servers.
func (c *Client) Limits(ctx context.Context, id gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	var limits gpu.MPSLimitsInForce
	err := c.do(ctx, http.MethodGet, pathOf(id)+"/limits", nil, &limits)
	return limits, err
}

// Stop stops a control daemon and its servers, and removes its directory. A missing daemon counts as stopped. *gpu.MPSClientsError: clients
// are connected. gpu.ErrInUse: a process of the daemon was killed and has not exited.
func (c *Client) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	return c.do(ctx, http.MethodDelete, pathOf(id), nil, nil)
}

func pathOf(id gpu.MPSDaemonID) string { return "/v1/daemons/" + url.PathEscape(string(id)) }

// do repeats a request until there is an answer. gpu.ErrTimeout: the service runs, but has not answered before the context was done.
func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("calling the MPS service: %w", err)
		}
	}
	deadline := time.Now().Add(c.restartTime)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		connected, answered, err := c.attempt(ctx, method, path, text, into)
		switch {
		case answered || err == nil:
			return err
		case connected && ctx.Err() != nil:
			return fmt.Errorf("the MPS service at %s did not complete %s %s in time; it may do so later: %w: %w",
				c.socket, method, path, gpu.ErrTimeout, context.Cause(ctx))
		}
		if errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil || time.Now().Add(pause).After(deadline) {
			return fmt.Errorf("%w at %s: %w", gpu.ErrMPSUnavailable, c.socket, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// attempt makes a request once. connected: the service accepted the connection. answered: err is the service's answer.
func (c *Client) attempt(ctx context.Context, method, path string, body []byte, into any) (connected, answered bool, err error) {
	var accepted atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { accepted.Store(true) }})
	answered, err = c.once(ctx, method, path, body, into)
	return accepted.Load(), answered, err
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, into any) (answered bool, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://mpsd"+path, bytes.NewReader(body))
	if err != nil {
		return true, fmt.Errorf("calling the MPS service: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return false, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return true, failure(response.StatusCode, text)
	}
	if into == nil {
		return true, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return true, fmt.Errorf("reading the response of the MPS service: %w", err)
	}
	return true, nil
}

// failure returns the error for an answer with a status of 400 or more.
func failure(status int, text []byte) error {
	var f Failure
	if err := json.Unmarshal(text, &f); err != nil || f.Error == "" {
		return fmt.Errorf("the MPS service returned status %d: %.200s", status, text)
	}
	return f.err()
}
