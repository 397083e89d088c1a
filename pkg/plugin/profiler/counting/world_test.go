package counting

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

const (
	uidA = "6f0c1d2e-0000-4000-8000-00000000000a"
	uidB = "6f0c1d2e-0000-4000-8000-00000000000b"
	gpu1 = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
	gpu2 = "GPU-bbbbbbbb-0000-4000-8000-000000000000"
)

// world is an extension with the directory of a collector, and what it reports.
type world struct {
	*Extension
	t     *testing.T
	files *unsynced
	// config is the ProfilerConfig of every claim.
	config *v1alpha1.ProfilerConfig

	mu      sync.Mutex
	changed []string
	busy    [][]gpu.UUID
	events  []string
	// watchers are the opened watchers; noWatcher: there is none.
	watchers  []*fakeWatcher
	noWatcher error
	kept      []*checkpoint.Record
	unread    error
}

// unsynced fails the test at every sync.
type unsynced struct {
	disk.OS
	t *testing.T
}

func (u *unsynced) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	if durable {
		u.t.Errorf("%s was synced", path)
	}
	return u.OS.Write(path, data, perm, durable)
}

func (u *unsynced) SyncDir(dir string) error {
	u.t.Errorf("%s was synced", dir)
	return u.OS.SyncDir(dir)
}

// fakeWatcher is a watcher without inotify, which blocks no bubble.
type fakeWatcher struct {
	world   *world
	changed func()
	folders map[string]bool
	closed  bool
}

func (f *fakeWatcher) Add(dir string) error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	f.folders[filepath.Clean(dir)] = true
	return nil
}

func (f *fakeWatcher) Remove(dir string) error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	delete(f.folders, filepath.Clean(dir))
	return nil
}

func (f *fakeWatcher) Close() error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.closed = true
	return nil
}

// newWorld returns a node with the collector, and the folders of two claims.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, files: &unsynced{t: t}, config: &v1alpha1.ProfilerConfig{}}
	w.config.Default()
	dir := filepath.Join(t.TempDir(), "collector")
	for _, uid := range []string{uidA, uidB} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, uid), 0o700))
	}
	w.Extension = New(t.Context(), Options{
		Files: w.files, Dir: dir, Enabled: true, NodeName: "n0", StartTimeout: 10 * time.Second, ReportTimeout: time.Minute,
		Config: func(*checkpoint.Record) (*v1alpha1.ProfilerConfig, error) { return w.config, nil },
		Changed: func(uid string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed = append(w.changed, uid)
		},
	})
	w.newWatcher = func(changed func()) (watcher, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.noWatcher != nil {
			return nil, w.noWatcher
		}
		f := &fakeWatcher{world: w, changed: changed, folders: map[string]bool{}}
		w.watchers = append(w.watchers, f)
		return f, nil
	}
	w.Connect(t.Context(), extension.Connection{ClaimEvents: w, Records: w.read})
	w.Attach(t.Context(), extension.Attachment{SetBusy: func(_ gpu.DeviceType, gpus []gpu.UUID) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy = append(w.busy, slices.Clone(gpus))
	}})
	return w
}

func (w *world) read() ([]*checkpoint.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept, w.unread
}

// WarnOfClaim records an Event.
func (w *world) WarnOfClaim(namespace, name, _, reason, _, note string) {
	w.events = append(w.events, namespace+"/"+name+" "+reason+": "+note)
}

// counted is the record of a claim for the counters of two GPUs.
func counted(t *testing.T, uid string) *checkpoint.Record {
	t.Helper()
	raw, err := json.Marshal(gpu.CounterOptions{
		GPUs:        []gpu.CounterGPU{{UUID: gpu1, PCIAddress: "0000:01:00.0"}, {UUID: gpu2, PCIAddress: "0000:02:00.0"}},
		FrequencyHz: 10000, MetricSet: "gh100", Seconds: 600,
	})
	require.NoError(t, err)
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: uid, Namespace: "team", Name: "train"}, State: checkpoint.Done,
		Extensions: checkpoint.Extensions{claim.KindCounters: raw},
		Results:    []checkpoint.Result{{Type: gpu.TypePerfmon, GPUUUID: gpu1, Extensions: checkpoint.Extensions{claim.KindCounters: []byte("{}")}}},
	}
}

// put replaces a file of the collector, and reports that to the watcher.
func (w *world) put(at string, encode func() ([]byte, error)) {
	w.t.Helper()
	raw, err := encode()
	require.NoError(w.t, err)
	require.NoError(w.t, disk.Replace(disk.OS{}, at, raw, 0o600, false))
	w.notify(filepath.Dir(at))
}

// notify reports a change in a folder to the open watcher.
func (w *world) notify(dir string) {
	w.mu.Lock()
	var changed func()
	if n := len(w.watchers); n > 0 && !w.watchers[n-1].closed && w.watchers[n-1].folders[dir] {
		changed = w.watchers[n-1].changed
	}
	w.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// state replaces the state of a claim's order.
func (w *world) state(uid string, reason counters.Reason, message string) {
	w.t.Helper()
	w.put(w.path(uid, counters.StateFile), counters.State{Reason: reason, Message: message}.Encode)
}

// uses replaces the list of busy GPUs.
func (w *world) uses(gpus ...string) {
	w.t.Helper()
	w.put(filepath.Join(w.options.Dir, counters.BusyFile), counters.Busy{GPUs: gpus}.Encode)
}

// seen returns the statuses that changed and the calls about busy GPUs since the last call.
func (w *world) seen() (changed []string, busy [][]gpu.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed, busy = w.changed, w.busy
	w.changed, w.busy = nil, nil
	return changed, busy
}

// watching returns the folders that are watched now, by their names, and how many watchers were opened.
func (w *world) watching() (names []string, opened int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.watchers {
		for dir := range f.folders {
			if !f.closed {
				names = append(names, filepath.Base(dir))
			}
		}
	}
	slices.Sort(names)
	return names, len(w.watchers)
}

// ordered returns the order of a claim; nil if there is none.
func (w *world) ordered(uid string) *counters.Order {
	w.t.Helper()
	raw, err := os.ReadFile(w.path(uid, counters.OrderFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(w.t, err)
	order, err := counters.ParseOrder(raw)
	require.NoError(w.t, err)
	return order
}

// lead runs Lead until it returns.
func (w *world) lead(ctx context.Context) error {
	w.Lead(ctx)
	<-ctx.Done()
	return nil
}
