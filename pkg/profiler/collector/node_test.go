package collector

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

const (
	claimA = "0aaaaaaa-0000-4000-8000-000000000000"
	claimB = "0bbbbbbb-0000-4000-8000-000000000000"
	uuidA  = "GPU-0aaaaaaa-0000-4000-8000-000000000000"
	uuidB  = "GPU-0bbbbbbb-0000-4000-8000-000000000000"
	pciA   = "0000:65:00.0"
	pciB   = "0000:66:00.0"
)

const (
	lineA = "\t1: Turing TU104 | GeForce RTX 2070 SUPER PCI[0000:65:00.0]\n"
	lineB = "\t0: Turing TU104 | GeForce RTX 2070 SUPER PCI[0000:66:00.0]\n"
	free  = "Possible --gpu-metrics-device values are:\n" + lineB + lineA + "\tall: Select all supported GPUs\n\tnone: Disable GPU Metrics [Default]\n"
	busyA = "Possible --gpu-metrics-device values are:\n" + lineB + "Some GPUs are not supported:\n" + lineA + "\t\tAlready under profiling\n"
)

// node is a node whose profiler is not a program.
type node struct {
	t        *testing.T
	dir      string
	root     *os.Root
	events   chan fsnotify.Event
	failures chan error
	end      func()
	result   chan error
	orders   *orders
	begun    chan *fakeRecording
	mu       sync.Mutex
	// list is the output of help, listing the number of calls; hang holds the calls back.
	list     string
	listErr  error
	listing  int
	hang     chan struct{}
	watched  []string
	watchErr error
	beginErr error
	// lingers holds back the end of terminated recordings.
	lingers chan struct{}
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), list: free}
	n.start()
	return n
}

// start starts a collector, as after a restart.
func (n *node) start() {
	n.t.Helper()
	root, err := os.OpenRoot(n.dir)
	require.NoError(n.t, err)
	n.root, n.begun, n.result = root, make(chan *fakeRecording, 10), make(chan error, 1)
	n.events, n.failures = make(chan fsnotify.Event), make(chan error)
	ctx, end := context.WithCancel(n.t.Context())
	n.end = sync.OnceFunc(func() {
		end()
		assert.NoError(n.t, <-n.result)
		_ = root.Close()
	})
	n.orders = newOrders(n.dir, root, n, n)
	go func() { n.result <- n.orders.run(ctx, n.events, n.failures) }()
	synctest.Wait()
}

func (n *node) Add(path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watched = append(n.watched, path)
	return n.watchErr
}

func (n *node) Remove(string) error { return nil }

func (n *node) tool() nsight.Tool {
	common := []string{"--sample", "--cpuctxsw", "--gpu-metrics-device", "--gpu-metrics-frequency", "--gpu-metrics-set", "--trace", "--wait", "--kill"}
	return nsight.Tool{Version: "1", Switches: common, Launch: common, Start: common}
}

func (n *node) help(ctx context.Context, args ...string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if strings.Contains(args[1], "-set=") {
		return "\ttu10x        : General\n\tga10x        : General\n", nil
	}
	n.listing++
	if hang := n.hang; hang != nil {
		n.hang = nil // the next call succeeds
		n.mu.Unlock()
		defer n.mu.Lock()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-hang:
		}
	}
	return n.list, n.listErr
}

// lists sets the output of help.
func (n *node) lists(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = text
}

func (n *node) listings() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listing
}

func (n *node) begin(ctx context.Context, order *counters.Order, commands nsight.Commands, _ <-chan struct{}) (recording, error) {
	if n.beginErr != nil {
		return nil, n.beginErr
	}
	r := &fakeRecording{order: order, commands: commands, progress: make(chan event), finished: make(chan struct{}), terminated: ctx.Done(), stop: make(chan outcome)}
	go func() {
		select {
		case r.end = <-r.stop:
		case <-ctx.Done():
			if n.lingers != nil {
				<-n.lingers
			}
			r.end = outcome{reason: counters.Ended}
		}
		close(r.progress)
	}()
	n.begun <- r
	return r, nil
}

// fakeRecording is a recording that the test continues.
type fakeRecording struct {
	order      *counters.Order
	commands   nsight.Commands
	progress   chan event
	finished   chan struct{}
	once       sync.Once
	terminated <-chan struct{}
	stop       chan outcome
	end        outcome
}

func (r *fakeRecording) events() <-chan event { return r.progress }
func (r *fakeRecording) finish()              { r.once.Do(func() { close(r.finished) }) }
func (r *fakeRecording) result() outcome      { return r.end }

// is reports whether a channel is closed, without waiting: fake time would go on.
func is(closed <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-closed:
		return true
	default:
		return false
	}
}

func (r *fakeRecording) reports(e event) {
	r.progress <- e
	synctest.Wait()
}

func (r *fakeRecording) ends(o outcome) {
	r.stop <- o
	synctest.Wait()
}

// order returns the order of a claim.
func order(claim string, gpus ...counters.GPU) counters.Order {
	return counters.Order{Claim: claim, Namespace: "ns", Name: "claim", Node: "node-a", GPUs: gpus, FrequencyHz: 10000, Seconds: 100, File: "{PROCESS_NAME}"}
}

var (
	gpuA = counters.GPU{UUID: uuidA, PCIAddress: pciA}
	gpuB = counters.GPU{UUID: uuidB, PCIAddress: pciB}
)

// writes writes an order as the plugin.
func (n *node) writes(o counters.Order) {
	n.t.Helper()
	raw, err := o.Encode()
	require.NoError(n.t, err)
	n.writesRaw(o.Claim, raw)
}

func (n *node) writesRaw(claim string, raw []byte) {
	n.t.Helper()
	require.NoError(n.t, os.MkdirAll(filepath.Join(n.dir, claim), 0o700))
	path := filepath.Join(n.dir, claim, counters.OrderFile)
	require.NoError(n.t, errors.Join(os.WriteFile(path+".tmp", raw, 0o600), os.Rename(path+".tmp", path)))
	n.notifies(path)
}

func (n *node) removes(claim string) {
	n.t.Helper()
	path := filepath.Join(n.dir, claim, counters.OrderFile)
	require.NoError(n.t, os.Remove(path))
	n.events <- fsnotify.Event{Name: path, Op: fsnotify.Remove}
	synctest.Wait()
}

func (n *node) notifies(path string) {
	n.events <- fsnotify.Event{Name: path, Op: fsnotify.Create}
	synctest.Wait()
}

// next returns the recording that begins.
func (n *node) next() *fakeRecording {
	n.t.Helper()
	synctest.Wait()
	select {
	case r := <-n.begun:
		return r
	default:
		require.Fail(n.t, "no recording began")
		return nil
	}
}

func (n *node) beginsNone() {
	n.t.Helper()
	synctest.Wait()
	assert.Empty(n.t, n.begun)
}

func (n *node) state(claim string) counters.State {
	n.t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.dir, claim, counters.StateFile))
	if errors.Is(err, os.ErrNotExist) {
		return counters.State{}
	}
	require.NoError(n.t, err)
	s, ok := counters.ParseState(raw)
	require.True(n.t, ok, string(raw))
	return s
}

func (n *node) is(claim string, reason counters.Reason, message string) {
	n.t.Helper()
	s := n.state(claim)
	assert.Equal(n.t, reason, s.Reason, s.Message)
	assert.Equal(n.t, message, s.Message)
}

// busy returns the file busy; nil without one.
func (n *node) busy() []string {
	n.t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.dir, counters.BusyFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(n.t, err)
	return append([]string{}, counters.ParseBusy(raw)...)
}

func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inBubble runs a test with fake time.
func inBubble(t *testing.T, run func(t *testing.T, n *node)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		run(t, n)
		n.end()
		synctest.Wait()
	})
}
