package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wire records the writes of a stream with their times.
type wire struct {
	http.ResponseWriter
	start  time.Time
	mu     sync.Mutex
	events []received
}

type received struct {
	at   time.Duration
	text string
}

func (w *wire) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, received{time.Since(w.start), string(text)})
	return len(text), nil
}

func (w *wire) Flush() {}

// updates are the events with data so far.
func (w *wire) updates(t *testing.T) (all []update, at []time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		data, found := strings.CutPrefix(e.text, "data: ")
		if !found {
			continue
		}
		var u update
		require.NoError(t, json.Unmarshal([]byte(data), &u))
		all, at = append(all, u), append(at, e.at)
	}
	return all, at
}

// stream opens a stream of events in a bubble of testing/synctest.
func openStream(t *testing.T, s *server) (w *wire, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8123/events", nil).WithContext(ctx)
	r.AddCookie(&http.Cookie{Name: s.cookie, Value: s.token})
	w = &wire{ResponseWriter: httptest.NewRecorder(), start: time.Now()}
	done := make(chan struct{})
	go func() { defer close(done); s.ServeHTTP(w, r) }()
	synctest.Wait()
	return w, func() { cancel(); <-done }
}

// pictureOf is a state of nodes with as many GPUs.
func pictureOf(gpus map[string]int) *State {
	s := &State{Meta: Meta{Time: 1}, Nodes: []Node{}, Pods: []Pod{}}
	for _, name := range []string{"a", "b", "c"} {
		if n, found := gpus[name]; found {
			s.Nodes = append(s.Nodes, Node{Name: name, GPUs: make([]GPU, n)})
		}
	}
	return s
}

func TestEvents_Changes_OnlyChangedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testServer(t, fakeSource{})
		w, end := openStream(t, s)
		defer end()
		all, _ := w.updates(t)
		assert.Empty(t, all, "nothing is read yet")
		publish := func(gpus map[string]int, pods ...Pod) {
			p := pictureOf(gpus)
			p.Pods = append(p.Pods, pods...)
			require.NoError(t, s.hub.publish(p))
			time.Sleep(2 * interval)
		}
		publish(map[string]int{"a": 1, "b": 1})
		publish(map[string]int{"a": 1, "b": 2})
		publish(map[string]int{"a": 1, "b": 2}, Pod{Namespace: "ml", Name: "train"})
		publish(map[string]int{"a": 1, "b": 2, "c": 1}, Pod{Namespace: "ml", Name: "train"})
		all, _ = w.updates(t)
		require.Len(t, all, 4)
		assert.True(t, all[0].Full)
		assert.Len(t, all[0].Nodes, 2)
		assert.JSONEq(t, `[]`, string(all[0].Pods))
		assert.False(t, all[1].Full)
		require.Len(t, all[1].Nodes, 1)
		assert.Contains(t, string(all[1].Nodes[0]), `"name":"b"`)
		assert.Nil(t, all[1].Pods, "the pods did not change")
		assert.Empty(t, all[2].Nodes)
		assert.Contains(t, string(all[2].Pods), `"train"`)
		assert.True(t, all[3].Full, "another node")
		assert.Len(t, all[3].Nodes, 3)
	})
}

func TestEvents_Loads_WithoutNodesAndPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testServer(t, fakeSource{})
		w, end := openStream(t, s)
		defer end()
		loads := func(utilization float64) *Loads {
			return &Loads{GPUs: map[string]Load{"GPU-1": {Utilization: &utilization}}}
		}
		require.NoError(t, s.hub.publishLoads(loads(.5)))
		time.Sleep(2 * interval)
		all, _ := w.updates(t)
		assert.Empty(t, all, "without a picture there is nothing to draw")
		require.NoError(t, s.hub.publish(pictureOf(map[string]int{"a": 1})))
		for range 2 {
			require.NoError(t, s.hub.publishLoads(loads(.75)))
			time.Sleep(2 * interval)
		}
		all, _ = w.updates(t)
		require.NotEmpty(t, all)
		last := all[len(all)-1]
		assert.JSONEq(t, `{"gpus":{"GPU-1":{"utilization":0.75}}}`, string(last.Loads))
		if len(all) > 1 {
			assert.Empty(t, last.Nodes)
			assert.Nil(t, last.Pods)
		}
		assert.LessOrEqual(t, len(all), 2, "equal loads are no change")
	})
}

func TestEvents_ManyChanges_OneASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testServer(t, fakeSource{})
		w, end := openStream(t, s)
		defer end()
		for i := range 50 {
			require.NoError(t, s.hub.publish(pictureOf(map[string]int{"a": i})))
			time.Sleep(interval / 10)
		}
		all, at := w.updates(t)
		assert.GreaterOrEqual(t, len(all), 5)
		for i := 1; i < len(at); i++ {
			assert.GreaterOrEqual(t, at[i]-at[i-1], interval)
		}
		time.Sleep(2 * interval)
		all, _ = w.updates(t)
		assert.Len(t, all[len(all)-1].Nodes, 1, "the last change is not lost")
		assert.Equal(t, 49, strings.Count(string(all[len(all)-1].Nodes[0]), `"product"`))
	})
}

func TestEvents_NoChanges_KeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testServer(t, fakeSource{})
		w, end := openStream(t, s)
		time.Sleep(keepAlive + time.Second)
		synctest.Wait()
		assert.Len(t, w.events, 2)
		assert.True(t, strings.HasPrefix(w.events[1].text, ":"))
		end()
		assert.Empty(t, s.streaming, "the stream has ended with its browser")
	})
}

func TestEvents_TooManyStreams_Refused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testServer(t, fakeSource{})
		var ends []func()
		for range streams {
			_, end := openStream(t, s)
			ends = append(ends, end)
		}
		assert.Equal(t, http.StatusServiceUnavailable, ask(s, http.MethodGet, "/events", nil).Code)
		ends[0]()
		_, end := openStream(t, s)
		for _, end := range append(ends[1:], end) {
			end()
		}
	})
}
