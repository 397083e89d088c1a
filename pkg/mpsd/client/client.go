// Package client speaks to the MPS service of a node, prism-mpsd: JSON over HTTP on a unix socket. It runs no programs.
//
// Every request may be repeated, so the client repeats those that got no answer while the service restarts. A service that restarts leaves its
// socket: where there is none, no service has started since the node has booted, and every request fails at once. The service and its client may
// be of different versions: both ignore fields that they do not know.
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
	// restartTime is how long a request is repeated while the service does not answer.
	restartTime = 10 * time.Second
	// firstPause and longestPause are between two attempts.
	firstPause, longestPause = 5 * time.Millisecond, 250 * time.Millisecond
	// answerLimit is the most that is read of an answer, in bytes.
	answerLimit = 4 << 20
)

// Client is a connection to the MPS service. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	socket string
	// restartTime is how long a request is repeated.
	restartTime time.Duration
}

// New returns a client of the service at a unix socket, which need not exist yet.
func New(socket string) *Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		// A connection that is kept would be that of a service which has exited meanwhile.
		DisableKeepAlives: true,
	}
	return &Client{http: &http.Client{Transport: transport}, socket: socket, restartTime: restartTime}
}

// Info returns what the service is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	err := c.do(ctx, http.MethodGet, "/v1", nil, &info)
	return info, err
}

// Probe asks for Info once: a request that gets no answer is not repeated. The problem is why the service can start no control daemon, empty
// where it can.
func (c *Client) Probe(ctx context.Context) (problem string, err error) {
	once := Client{http: c.http, socket: c.socket}
	info, err := once.Info(ctx)
	return info.Error, err
}

// Daemons lists the control daemons by id, running or not, and the revision of the list. With after > 0 it waits until the revision is
// greater, at most 30 s, then answers anyway.
func (c *Client) Daemons(ctx context.Context, after int64) (daemons []gpu.MPSDaemon, revision int64, err error) {
	var list List
	err = c.do(ctx, http.MethodGet, "/v1/daemons?after="+strconv.FormatInt(after, 10), nil, &list)
	return list.Daemons, list.Revision, err
}

// Start starts a control daemon without a server. One that is running stays.
func (c *Client) Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return c.put(ctx, id, "?server=false", spec)
}

// StartNew starts a control daemon, without a server, of a device that no claim uses: one with other settings, or that has accepted clients, is
// replaced together with its directory. A service of an earlier version leaves a daemon that runs and the directory as they are; the
// settings of the daemon are in the answer. *gpu.MPSClientsError: clients are connected.
func (c *Client) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return c.put(ctx, id, "?server=false&unused=true", spec)
}

// Ensure returns when the control daemon accepts clients, with its server where one is for all users. One that is running keeps its
// spec, which is in the answer; one of a replaced driver is started again if it has no clients.
func (c *Client) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return c.put(ctx, id, "", spec)
}

// RestoreLimits sets the limits of a running control daemon and of its servers to those of the spec, and reads them back. Clients that are
// connected keep the limits that they have.
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

// Stop stops a control daemon and its servers, and removes its directory; one that is absent is stopped. *gpu.MPSClientsError: clients are
// connected. gpu.ErrInUse: a process of it was killed and has not exited.
func (c *Client) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	return c.do(ctx, http.MethodDelete, pathOf(id), nil, nil)
}

func pathOf(id gpu.MPSDaemonID) string { return "/v1/daemons/" + url.PathEscape(string(id)) }

// do makes a request until there is an answer. gpu.ErrTimeout: the context was done before the service, which runs, has answered.
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

// attempt makes a request once. Connected: the service has accepted it. Answered: err is the service's answer.
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

// failure is the error of an answer with a status of 400 or more.
func failure(status int, text []byte) error {
	var f Failure
	if err := json.Unmarshal(text, &f); err != nil || f.Error == "" {
		return fmt.Errorf("the MPS service returned status %d: %.200s", status, text)
	}
	return f.err()
}
