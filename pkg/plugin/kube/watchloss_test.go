package kube_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// watched answers requests with a body that ends after a time.
type watched struct {
	after time.Duration
	err   error
	code  int
}

func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: w.code, Body: &ending{time.Now().Add(w.after), w.err, r.Context()}}, nil
}

// ending is a body that ends at a time.
type ending struct {
	at  time.Time
	err error
	ctx context.Context //nolint:containedctx // of the request
}

func (e *ending) Read([]byte) (int, error) {
	select {
	case <-time.After(time.Until(e.at)):
		return 0, e.err
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	}
}

func (e *ending) Close() error { return nil }

// TestWatchLoss_WatchEnds_LostUnlessDue: a renewal at the time in the request is normal; an earlier end in any form is a loss.
func TestWatchLoss_WatchEnds_LostUnlessDue(t *testing.T) {
	t.Parallel()
	const watch = "http://server/api/v1/nodes?watch=true&timeoutSeconds=400"
	reset := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		url    string
		answer watched
		want   bool
	}{
		"at its time":            {watch, watched{400 * time.Second, io.EOF, 200}, false},
		"before, cleanly":        {watch, watched{399 * time.Second, io.EOF, 200}, true},
		"before":                 {watch, watched{time.Second, reset, 200}, true},
		"without a time, sooner": {"http://server/api/v1/nodes?watch=1", watched{29 * time.Minute, io.EOF, 200}, true},
		"without a time":         {"http://server/api/v1/nodes?watch=1", watched{31 * time.Minute, io.EOF, 200}, false},
		"refused":                {watch, watched{0, io.EOF, 410}, false},
		"a list":                 {"http://server/api/v1/nodes", watched{time.Second, reset, 200}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				loss := kube.NewWatchLoss()
				client := &http.Client{Transport: loss.Wrap(c.answer)}
				for range 2 { // the second one is not lost either, and blocks nothing
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, http.NoBody)
					require.NoError(t, err)
					answer, err := client.Do(request)
					require.NoError(t, err)
					_, err = answer.Body.Read(nil)
					require.ErrorIs(t, err, c.answer.err)
					require.NoError(t, answer.Body.Close())
				}
				assert.Equal(t, c.want, len(loss.Lost()) == 1)
			})
		})
	}
}

// TestWatchLoss_ClientEndsWatch_NotLost: an informer that stops, or that starts a watch again itself, has lost nothing.
func TestWatchLoss_ClientEndsWatch_NotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, end := range []func(cancel func(), body io.Closer){
			func(cancel func(), _ io.Closer) { cancel() },
			func(_ func(), body io.Closer) { _ = body.Close() },
		} {
			loss := kube.NewWatchLoss()
			client := &http.Client{Transport: loss.Wrap(watched{time.Second, io.ErrUnexpectedEOF, 200})}
			ctx, cancel := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api/v1/nodes?watch=true&timeoutSeconds=400", http.NoBody)
			require.NoError(t, err)
			answer, err := client.Do(request)
			require.NoError(t, err)
			end(cancel, answer.Body)
			_, err = answer.Body.Read(nil)
			require.Error(t, err)
			require.NoError(t, answer.Body.Close())
			assert.Empty(t, loss.Lost())
			cancel()
		}
	})
}
