package view

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// deadline is the longest time that a test waits for a picture or a request.
const deadline = 20 * time.Second

// watching runs a watch with a clock that stands still.
type watching struct {
	*testing.T

	*server
	clock  *clocktesting.FakeClock
	drawn  chan picture
	failed chan error
}

// picture is a picture that was drawn.
type picture struct {
	*clusterview.Cluster

	missing []Missing
}

func startWatch(t *testing.T, s *server, paths int) *watching {
	t.Helper()
	w := &watching{t, s, clocktesting.NewFakeClock(time.Unix(0, 0)), make(chan picture, 100), make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	client := s.client(t)
	go func() {
		w.failed <- watchWith(ctx, w.clock, newReader(client, options), func(c *clusterview.Cluster, missing []Missing) error {
			w.drawn <- picture{c, missing}
			return nil
		})
	}()
	w.next()
	for range paths {
		w.open()
	}
	return w
}

// next returns the next picture.
func (w *watching) next() picture {
	w.Helper()
	select {
	case c := <-w.drawn:
		return c
	case err := <-w.failed:
		require.NoError(w, err)
	case <-time.After(deadline):
		require.Fail(w, "no picture")
	}
	return picture{}
}

// open returns the next watch that is opened, with its resource version.
func (w *watching) open() string {
	w.Helper()
	select {
	case opened := <-w.opened:
		return opened
	case <-time.After(deadline):
		require.Fail(w, "no watch")
	}
	return ""
}

// waits waits until something waits for the clock.
func (w *watching) waits() {
	w.Helper()
	require.Eventually(w, w.clock.HasWaiters, deadline, time.Millisecond)
}

func TestWatch_Changes_OnePictureASecond(t *testing.T) {
	t.Parallel()
	for _, inJSON := range []bool{false, true} {
		changesOnce(t, inJSON)
	}
}

// changesOnce changes objects, and requires one picture of all changes.
func changesOnce(t *testing.T, inJSON bool) {
	t.Helper()
	s := newServer(t)
	s.json = inJSON
	s.lists[pathSlices] = []runtime.Object{published(1, driver)}
	w := startWatch(t, s, 6)
	w.send(t, pathSlices, "ADDED", published(2, driver))
	w.send(t, pathSlices, "DELETED", published(1, driver))
	w.send(t, pathClaims, "ADDED", use("ml", "c", 2))
	bookmark := published(0, driver)
	bookmark.ResourceVersion = "55"
	w.send(t, pathSlices, "BOOKMARK", bookmark)
	w.waits()
	w.clock.Step(999 * time.Millisecond)
	assert.True(t, w.clock.HasWaiters(), "the picture waits for the end of the second")
	assert.Empty(t, w.drawn)
	require.Eventually(t, func() bool { // the last change may be still on its way
		w.clock.Step(time.Second)
		select {
		case c := <-w.drawn:
			n := c.FindNode("n2")
			return n != nil && c.FindNode("n1") == nil && c.FindNode("n0") == nil && len(n.Pools[0].Uses) == 1
		default:
			w.send(t, pathClaims, "MODIFIED", use("ml", "c", 2))
			return false
		}
	}, deadline, time.Millisecond)
	assert.Len(t, s.asked("GET "+pathSlices), 1, "no list after the first")
}

func TestWatch_FirstRequests_GoOnFromTheList(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	delete(s.lists, pathRules)
	w := &watching{T: t, server: s}
	startWatch(t, s, 0)
	opened := map[string]bool{}
	for range 5 {
		opened[w.open()] = true
	}
	assert.Equal(t, map[string]bool{pathSlices + " 10": true, pathClaims + " 10": true, pathClasses + " 10": true, pathNodes + " 10": true, pathPods + " 10": true}, opened)
}

func TestWatch_VersionTooOld_ListsAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.lists[pathSlices] = []runtime.Object{published(1, driver)}
	first := true
	s.each = func(request string) {
		if request == "WATCH "+pathSlices && first {
			s.mu.Lock()
			first, s.expireWatch = false, 1
			s.lists[pathSlices] = []runtime.Object{published(2, driver)}
			s.mu.Unlock()
		}
	}
	delete(s.lists, pathRules)
	delete(s.lists, pathPods)
	s.deny[pathPods], s.deny["/api/v1/namespaces/team/pods"] = true, true
	for _, path := range []string{pathClaims, pathClasses, pathNodes} {
		s.deny["WATCH "+path] = true
	}
	w := startWatch(t, s, 0)
	require.Eventually(t, func() bool {
		w.clock.Step(time.Second)
		select {
		case c := <-w.drawn:
			return c.FindNode("n2") != nil && c.FindNode("n1") == nil && len(c.missing) == 5
		default:
			return false
		}
	}, deadline, time.Millisecond)
	require.Eventually(t, func() bool { // the next watch begins after a second
		w.clock.Step(time.Second)
		return len(w.opened) == 1
	}, deadline, time.Millisecond)
	assert.Equal(t, pathSlices+" 10", w.open())
	assert.Len(t, s.asked("GET "+pathSlices), 2)
}

func TestFollow_VersionAlwaysTooOld_WaitsAfterList(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.expireWatch = 100
	r := newReader(s.client(t), options)
	require.NoError(t, r.read(t.Context()))
	w := &watcher{reader: r, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.follow(ctx, r.slices) }()
	require.Eventually(t, w.clock.(*clocktesting.FakeClock).HasWaiters, deadline, time.Millisecond)
	assert.Len(t, s.asked("GET "+pathSlices), 2)
	assert.Len(t, s.asked("WATCH "+pathSlices), 1)
	cancel()
	assert.NoError(t, <-ended)
}

func TestFollow_WatchForbidden_MissingRightOfTheNamespace(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	team := "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
	s.lists[team], s.deny[pathClaims], s.deny["WATCH "+team], s.deny["WATCH "+pathPods] = nil, true, true, true
	s.lists["/api/v1/namespaces/team/pods"], s.deny["WATCH /api/v1/namespaces/team/pods"], s.deny["WATCH "+pathNodes] = nil, true, true
	r := newReader(s.client(t), options)
	require.NoError(t, r.read(t.Context()))
	w := &watcher{reader: r, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), changed: make(chan struct{}, 1)}
	for _, k := range r.kinds[3:] { // nodes, claims, pods
		require.NoError(t, w.follow(t.Context(), k))
	}
	_, missing := r.picture()
	assert.Equal(t, []Missing{
		{"watch", "nodes", roleDevices}, {"watch", "pods in namespace team", roleNamespace},
		{"list", "resourceclaims.resource.k8s.io in all namespaces", roleAll}, {"watch", "resourceclaims.resource.k8s.io in namespace team", roleNamespace},
	}, missing)
}

func TestPods_EndedMeanwhile_LeavesPicture(t *testing.T) {
	t.Parallel()
	r := newReader(newServer(t).client(t), Options{Driver: driver, AllPods: true})
	k := r.ofPods()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "p"}}
	require.NoError(t, k.set(pod))
	c, _ := r.picture()
	assert.Len(t, c.Pods, 1)
	pod.Status.Phase = corev1.PodFailed
	require.NoError(t, k.set(pod))
	c, _ = r.picture()
	assert.Empty(t, c.Pods)
}

func TestWatch_DrawFails_ItsError(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	done := errors.New("done")
	err := Watch(t.Context(), s.client(t), options, func(*clusterview.Cluster, []Missing) error { return done })
	assert.ErrorIs(t, err, done)
}

func TestWatch_Canceled_ItsError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := Watch(ctx, newServer(t).client(t), options, func(*clusterview.Cluster, []Missing) error {
		cancel()
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
}
