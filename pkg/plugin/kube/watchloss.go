package kube

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// WatchLoss reports that the connection of a watch was lost. The API server ends a watch after the time in its request, and the client
// starts another one; a watch that ends earlier shows that the server, or a proxy before it, was restarted.
type WatchLoss struct{ lost chan struct{} }

// NewWatchLoss returns a WatchLoss; set rest.Config.Wrap to its Wrap.
func NewWatchLoss() *WatchLoss { return &WatchLoss{lost: make(chan struct{}, 1)} }

// Lost receives a token after connections were lost, one for several.
func (w *WatchLoss) Lost() <-chan struct{} { return w.lost }

// Wrap observes the watches of a client.
func (w *WatchLoss) Wrap(next http.RoundTripper) http.RoundTripper {
	return lossTransport{next, w.lost}
}

// unnamedTimeout is the minimum time that the API server keeps a watch whose request sets no time (--min-request-timeout).
const unnamedTimeout = 30 * time.Minute

type lossTransport struct {
	http.RoundTripper
	lost chan<- struct{}
}

// RoundTrip implements http.RoundTripper.
func (t lossTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := t.RoundTripper.RoundTrip(r)
	query := r.URL.Query()
	watches, _ := strconv.ParseBool(query.Get("watch"))
	if err != nil || !watches || response.StatusCode != http.StatusOK {
		return response, err
	}
	ends := began.Add(unnamedTimeout)
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		ends = began.Add(time.Duration(seconds) * time.Second)
	}
	response.Body = &watchBody{ReadCloser: response.Body, ctx: r.Context(), ends: ends, lost: t.lost}
	return response, nil
}

// WrappedRoundTripper is the transport below, for client-go.
func (t lossTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// watchBody is the body of a watch.
type watchBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // of the request
	ends   time.Time
	closed atomic.Bool
	lost   chan<- struct{}
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.closed.Load() && b.ctx.Err() == nil && time.Now().Before(b.ends) {
		select {
		case b.lost <- struct{}{}:
		default:
		}
	}
	return n, err
}

// Close implements io.Closer: the client ends the watch.
func (b *watchBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}
