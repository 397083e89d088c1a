package exporter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/allocation"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampler"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	waitLimit = time.Minute
	pause     = 5 * time.Millisecond
)

// fakeSampler returns the snapshot that was last set, and counts its calls.
type fakeSampler struct {
	snapshot  atomic.Pointer[metrics.Snapshot]
	ended     chan error
	ran       atomic.Bool
	released  atomic.Value
	claim     atomic.Value
	suspended atomic.Value
	destroyed atomic.Bool
	measured  atomic.Pointer[[]metrics.Field]
	status    sampler.Status
}

func (f *fakeSampler) Run(ctx context.Context) error {
	f.ran.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.ended:
		return err
	}
}
func (f *fakeSampler) Snapshot() *metrics.Snapshot     { return f.snapshot.Load() }
func (f *fakeSampler) Status() sampler.Status          { return f.status }
func (f *fakeSampler) Measure(fields ...metrics.Field) { f.measured.Store(&fields) }
func (f *fakeSampler) Release(mig gpu.UUID, claim string, destroyed bool) {
	f.claim.Store(claim)
	f.released.Store(mig)
	f.destroyed.Store(destroyed)
}

func (f *fakeSampler) Suspend(until time.Time) { f.suspended.Store(until) }

// fakeAllocations expose claim "uid-1".
type fakeAllocations struct {
	mu        sync.Mutex
	list      *metrics.Allocations
	sources   []allocation.Source
	exposed   int
	releasing func(gpu.UUID, string, bool)
	released  func(time.Time)
}

func (*fakeAllocations) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (f *fakeAllocations) Allocations() *metrics.Allocations {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}
func (f *fakeAllocations) Sources() []allocation.Source                  { return f.sources }
func (f *fakeAllocations) OnReleasing(call func(gpu.UUID, string, bool)) { f.releasing = call }
func (f *fakeAllocations) OnReleased(call func(time.Time))               { f.released = call }

func (f *fakeAllocations) Exposed(_ string, render func(string) []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exposed++
	render("uid-1")
	return errors.New("read-only file system")
}

// fixture is an exporter on fakes; the test advances its time.
type fixture struct {
	*Exporter
	sampler     *fakeSampler
	allocations *fakeAllocations
	ticks       chan time.Time
	address     chan net.Addr
	hasGPU      atomic.Bool
}

func newFixture(t *testing.T, cfg *config.Exporter) *fixture {
	t.Helper()
	f := &fixture{
		sampler: &fakeSampler{ended: make(chan error)}, ticks: make(chan time.Time), address: make(chan net.Addr, 2),
		allocations: &fakeAllocations{list: &metrics.Allocations{}, sources: []allocation.Source{{Name: allocation.SourceRecords, OK: true}}},
	}
	f.hasGPU.Store(true)
	f.sampler.snapshot.Store(&metrics.Snapshot{Generation: 1})
	cfg.NodeName, cfg.Serving.HTTPEndpoint = "node-a", "127.0.0.1:0"
	var err error
	f.Exporter, err = Build(cfg, Adapters{
		Version: "v1", MayHaveGPU: func() (bool, error) { return f.hasGPU.Load(), nil }, Sampler: f.sampler, Allocations: f.allocations,
		After: func(time.Duration) <-chan time.Time { return f.ticks }, Listening: func(at net.Addr) { f.address <- at },
	})
	require.NoError(t, err)
	return f
}

func (f *fixture) tick(t *testing.T) {
	t.Helper()
	select {
	case f.ticks <- time.Time{}:
	case <-time.After(waitLimit):
		require.Fail(t, "nothing waits")
	}
}

// TestNow_NothingChanged_SameRound: rounds are joined once, and again after a change of samples, allocations, sources or counters.
func TestNow_NothingChanged_SameRound(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	first := f.now()
	assert.Same(t, first, f.now())
	assert.Same(t, first.join(), f.now().join())
	for what, change := range map[string]func(){
		"samples":     func() { f.sampler.snapshot.Store(&metrics.Snapshot{Generation: 2}) },
		"allocations": func() { f.allocations.list = &metrics.Allocations{Generation: 2} },
		"sources":     func() { f.allocations.sources[0].OK = false },
		"errors":      func() { f.sampler.status.Errors = map[gpu.UUID]uint64{"GPU-1": 1} },
		"idle":        func() { f.idle.Store(true) },
		"reopened":    func() { f.sampler.status.Reopened++ },
		"limited":     func() { f.sampler.status.IntervalsLimited++ },
		"no identity": func() { f.sampler.status.Unidentified++ },
		"OTLP":        func() { f.otlpErrors.Add(1) },
		"failures":    func() { f.allocations.sources[0].Errors++ },
		"read":        func() { f.allocations.sources[0].Read = time.Now() },
		"counters":    func() { f.counters.selection = &metrics.Selection{} },
	} {
		before := f.now()
		change()
		assert.NotSame(t, before, f.now(), what)
	}
}

// TestSelf_Failures_HandedOn: failures of a source are reported, and for NVML the failures of all GPUs.
func TestSelf_Failures_HandedOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	f.allocations.sources[0].Errors = 2
	f.sampler.status.Errors = map[gpu.UUID]uint64{"GPU-1": 1, "GPU-2": 3}
	f.otlpErrors.Store(5)
	f.sampler.status.Unidentified = 2
	self := f.self()
	assert.Equal(t, 2, self.GPUsUnidentified)
	assert.Contains(t, f.notes(), "2 GPUs have not responded since the exporter started")
	assert.Equal(t, []metrics.SourceState{{Name: "records", OK: true, Errors: 2}, {Name: "nvml", OK: true, Errors: 4}}, self.Sources)
	assert.EqualValues(t, 5, self.OTLPErrors)
}

// TestBuild_Counters_FieldsMeasured: the sampler measures the fields that a CSV selects.
func TestBuild_Counters_FieldsMeasured(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counters.csv")
	require.NoError(t, os.WriteFile(file, []byte("DCGM_FI_DEV_FAN_SPEED, gauge, Fan speed.\n"), 0o600))
	cfg := &config.Exporter{}
	cfg.Pages.Counters = file
	f := newFixture(t, cfg)
	require.NotNil(t, f.sampler.measured.Load())
	assert.Equal(t, metrics.DefaultFields(), *f.sampler.measured.Load(), "those of the page without a file, until it is read")
	f.counters.read(t.Context())
	assert.Equal(t, []metrics.Field{metrics.FieldFanSpeed}, *f.sampler.measured.Load())
}

func TestOnReleasing_MIGDevice_SamplerLetsGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	for _, destroyed := range []bool{true, false} {
		f.allocations.releasing("MIG-1", "uid-1", destroyed)
		assert.Equal(t, "uid-1", f.sampler.claim.Load())
		assert.Equal(t, gpu.UUID("MIG-1"), f.sampler.released.Load())
		assert.Equal(t, destroyed, f.sampler.destroyed.Load())
	}
}

// TestOnReleased_GPUs_SamplerSuspended: the plugin's release of the GPUs closes the driver.
func TestOnReleased_GPUs_SamplerSuspended(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	until := time.Now().Add(time.Minute)
	f.allocations.released(until)
	assert.Equal(t, until, f.sampler.suspended.Load())
}

func TestReady_States_Named(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	f.sampler.snapshot.Store(&metrics.Snapshot{GPUs: []*metrics.GPU{
		{Identity: metrics.Identity{UUID: "GPU-1"}, Up: true, ProcessesHidden: true}, {Identity: metrics.Identity{UUID: "GPU-2"}},
	}})
	f.allocations.sources = []allocation.Source{{Name: allocation.SourceCRI, Error: "no socket"}}
	f.counters.stale = "/counters: line 1"
	require.NoError(t, f.ready())
	assert.Equal(t, []string{
		"cri: no socket", "processes on GPU GPU-1 are outside of the exporter's pid namespace: run the exporter with hostPID", "GPU GPU-2 does not respond",
		"counters of /metrics/dcgm: /counters: line 1; using the last valid ones",
	}, f.notes())
	f.sampler.status.Err = gpu.ErrDriverNotLoaded
	require.EqualError(t, f.ready(), "NVIDIA driver: NVIDIA driver is not loaded")
	f.sampler.status.Err = &sampler.SuspendedError{Until: time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC)}
	require.NoError(t, f.ready(), "a rollout must not wait for the end of maintenance")
	assert.Contains(t, f.notes(), "GPUs released for maintenance until 2026-11-29T06:00:00Z")
	assert.NotContains(t, f.notes(), "GPU GPU-2 does not respond", "nothing asks it")
	assert.True(t, f.self().GPUsReleased)
	assert.Contains(t, f.self().Sources, metrics.SourceState{Name: "nvml", OK: true}, "nothing failed")
	f.idle.Store(true)
	require.NoError(t, f.ready(), "a rollout must not wait for a node without GPU")
	assert.Equal(t, []string{"idle: the node has no NVIDIA GPU"}, f.notes())
	assert.Empty(t, f.self().Sources, "no source is down on a node that needs none")
}

// TestRun_DriverReplaced_ErrorEndsAll: HTTP begins first, and a replaced library stops everything.
func TestRun_DriverReplaced_ErrorEndsAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	f.hasGPU.Store(false)
	done := make(chan error, 1)
	go func() { done <- f.Run(t.Context()) }()
	at := <-f.address
	response, err := http.Get(fmt.Sprintf("http://%s/metrics", at)) //nolint:noctx // of this process
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, "there before there is a driver")
	assert.False(t, f.sampler.ran.Load(), "nothing is sampled without a GPU")
	f.hasGPU.Store(true)
	require.Eventually(t, func() bool {
		select {
		case f.ticks <- time.Time{}:
		default:
		}
		return f.sampler.ran.Load()
	}, waitLimit, time.Millisecond)
	f.sampler.ended <- fmt.Errorf("%w: other file", gpu.ErrDriverReplaced)
	select {
	case err := <-done:
		require.ErrorIs(t, err, gpu.ErrDriverReplaced)
	case <-time.After(waitLimit):
		require.Fail(t, "the exporter runs on")
	}
}

// TestExpose_SameRound_WrittenOnce: the files of claims are written once in each round, not at each check.
func TestExpose_SameRound_WrittenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.expose(ctx) }()
	for range 3 {
		f.tick(t)
	}
	f.sampler.snapshot.Store(&metrics.Snapshot{Generation: 2})
	f.tick(t)
	f.tick(t)
	cancel()
	require.NoError(t, <-done)
	assert.Equal(t, 2, f.allocations.exposed)
}

func TestBuild_InvalidWebConfig_Refused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(file, []byte("tls_server_config: {cert_file: /none}\n"), 0o600))
	_, err := Build(&config.Exporter{WebConfigFile: file}, Adapters{})
	require.ErrorContains(t, err, "--web-config-file: "+file)
}

func TestBuild_PodLabelsOfOneName_Refused(t *testing.T) {
	t.Parallel()
	_, err := Build(&config.Exporter{NodeName: "n", Pages: config.ExporterPages{PodLabelKeys: config.Names{"app.name", "app-name"}}}, Adapters{})
	require.EqualError(t, err, `--pod-label-keys: pod labels "app.name" and "app-name" would both become label app_name of metrics: remove one of them`)
}

// TestSystem_PodLabelKeys_ReadAndShown: if pod labels are selected, they are a source, and the pages show them.
func TestSystem_PodLabelKeys_ReadAndShown(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	boot := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(boot), 0o755), os.WriteFile(boot, []byte("boot\n"), 0o600)))
	for _, keys := range []config.Names{nil, {"team"}} {
		cfg := &config.Exporter{DriverName: "gpu.prism.dev", NodeName: "n", HostRoot: root, Pages: config.ExporterPages{PodLabelKeys: keys}}
		adapters, err := System(t.Context(), cfg, "v1")
		require.NoError(t, err)
		e, err := Build(cfg, adapters)
		require.NoError(t, err)
		isSource := slices.ContainsFunc(e.self().Sources, func(s metrics.SourceState) bool { return s.Name == string(allocation.SourcePodLabels) })
		assert.Equal(t, keys != nil, isSource)
		require.Len(t, e.self().PodLabels, len(keys))
		for i, key := range keys {
			assert.Equal(t, key, e.self().PodLabels[i].Key)
		}
	}
}
