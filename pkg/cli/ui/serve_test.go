package ui_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/ui"
	"github.com/prism-gpu/prism/test/fakes/gpucluster"
)

// still is a source with one picture.
func still(t *testing.T) ui.Source {
	t.Helper()
	store := clusterview.NewStore()
	require.NoError(t, gpucluster.Fill(t.Context(), store, 2, 2))
	return ui.Source{
		Watch: func(ctx context.Context, draw func(*clusterview.Cluster, []string) error) error {
			if err := draw(store.Cluster(), nil); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
		Explain: func(_ context.Context, c *clusterview.Cluster, pod *clusterview.Pod) (*explain.Explanation, error) {
			if c.FindPod(pod.Namespace, pod.Name) != pod {
				return nil, errors.New("a pod of another picture")
			}
			return &explain.Explanation{Sentence: "Pod " + pod.Name + " waits"}, nil
		},
	}
}

// serve starts the page at a port of the loopback interface; interrupt ends it, and result is the error of Serve.
func serve(t *testing.T, from ui.Source) (url string, interrupt func(), result <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	urls, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- ui.Serve(ctx, listener, ui.About{Driver: gpucluster.Driver}, from, func(url string) { urls <- url })
	}()
	return <-urls, cancel, done
}

// get requests a path with the cookies of a client.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") == "text/event-stream" {
		first := make([]byte, 1)
		_, err = answer.Body.Read(first)
		require.NoError(t, err)
		return answer.StatusCode, string(first)
	}
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func TestServe_Browser_FollowsURLAndReads(t *testing.T) {
	t.Parallel()
	url, interrupt, result := serve(t, still(t))
	base, _, _ := strings.Cut(url, "/?token=")
	code, _ := get(t, &http.Client{}, base+"/")
	assert.Equal(t, http.StatusForbidden, code)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	code, body := get(t, client, url)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "<title>GPUs</title>")
	code, body = get(t, client, base+"/explain?pod=ml-training/train-wait-0")
	assert.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, "Pod train-wait-0 waits")
	code, _ = get(t, client, base+"/explain?pod=ml-training/gone")
	assert.Equal(t, http.StatusNotFound, code)
	code, body = get(t, client, base+"/save")
	assert.Equal(t, http.StatusOK, code)
	assert.Len(t, stateIn(t, body).Nodes, 2)
	code, _ = get(t, client, base+"/events")
	assert.Equal(t, http.StatusOK, code)
	interrupt()
	assert.NoError(t, <-result, "an interrupt is no error")
}

func TestServe_SourceFails_Ends(t *testing.T) {
	t.Parallel()
	broken := errors.New("the API server does not answer")
	_, _, result := serve(t, ui.Source{Watch: func(context.Context, func(*clusterview.Cluster, []string) error) error { return broken }})
	assert.ErrorIs(t, <-result, broken)
}

// address is the address of a listener that is open to the network.
type address struct{ net.Listener }

func (address) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80} }

func TestServe_OpenAddress_Refused(t *testing.T) {
	t.Parallel()
	err := ui.Serve(t.Context(), address{}, ui.About{}, ui.Source{}, nil)
	assert.EqualError(t, err, "the page must be at the loopback interface, not at 10.0.0.1:80")
}

// pipes is a listener whose connections are pipes, so that a bubble of testing/synctest can wait for them.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.closed); return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8123} }

// TestServe_LongStream_NoTimeLimit: limits for requests do not end a stream.
func TestServe_LongStream_NoTimeLimit(t *testing.T) {
	t.Parallel()
	from := still(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		listener := pipes{make(chan net.Conn), make(chan struct{})}
		urls, done := make(chan string, 1), make(chan error, 1)
		go func() {
			done <- ui.Serve(ctx, listener, ui.About{Driver: gpucluster.Driver}, from, func(url string) { urls <- url })
		}()
		_, token, _ := strings.Cut(<-urls, "token=")
		browser, server := net.Pipe()
		listener.connections <- server
		_, err := io.WriteString(browser, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:8123\r\nCookie: prism-ui-8123="+token+"\r\n\r\n")
		require.NoError(t, err)
		var lines atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for scanner := bufio.NewScanner(browser); scanner.Scan(); {
				if strings.HasPrefix(scanner.Text(), ":") {
					lines.Add(1)
				}
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.GreaterOrEqual(t, lines.Load(), int64(40), "a comment every 15 s")
		cancel()
		assert.NoError(t, <-done)
		<-ended
	})
}
