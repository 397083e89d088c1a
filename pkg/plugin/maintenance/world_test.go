package maintenance_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
)

const (
	first  = gpu.UUID("GPU-5d3f61a2-1111-2222-3333-444444444444")
	second = gpu.UUID("GPU-7e001122-1111-2222-3333-444444444444")

	maintain = "maintenance.gpu.example.com/"
	release  = "release.gpu.example.com/"
	heal     = "heal.gpu.example.com/"
)

// world is a node with two GPUs. Its fields are guarded by mu while a process runs.
type world struct {
	dir string

	mu        sync.Mutex
	gpus      []gpu.GPU
	unknown   error
	replaced  chan struct{}
	records   []*checkpoint.Record
	unread    error
	clients   []maintenance.Client
	noClients error
	refused   map[gpu.UUID]error
	findings  []finding.Finding
	// maintained and conditions are the last ones passed to the monitor; log lists everything else in order.
	maintained map[gpu.UUID]string
	conditions map[gpu.UUID][]string
	log        []string
	// locked is called with the lock of a GPU; nil if it can be taken.
	locked func(ctx context.Context) error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	gpus := []gpu.GPU{
		{UUID: first, Minor: 0, PCI: gpu.PCI{BusID: "0000:3b:00.0"}}, {UUID: second, Minor: 1, PCI: gpu.PCI{BusID: "0000:af:00.0"}},
	}
	gpu.AssignIDs(gpus)
	return &world{dir: t.TempDir(), gpus: gpus, replaced: make(chan struct{}), refused: map[gpu.UUID]error{}}
}

func (w *world) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, text)
}

// take returns and clears the log.
func (w *world) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

func (w *world) Maintain(reasons map[gpu.UUID]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.maintained = reasons
}

func (w *world) Conditions(of map[gpu.UUID][]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conditions = of
}

func (w *world) Heal(id gpu.UUID, before time.Time) error {
	w.note("heal " + string(id) + " " + before.UTC().Format(time.RFC3339))
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[id]
}

func (w *world) All() []finding.Finding { return w.findings }

func (w *world) Warn(reason, _, note string) { w.note(reason + ": " + note) }

func (w *world) Normal(reason, _, note string) { w.note(reason + ": " + note) }

func (w *world) file() maintenance.File { return maintenance.File{Disk: disk.OS{}, Dir: w.dir} }

// process is a process of the node.
type process struct {
	*maintenance.Controller

	w    *world
	stop func()
}

// start starts a process whose sessions are logged with its name.
func (w *world) start(t *testing.T, name string, file disk.Files) *process {
	t.Helper()
	c := maintenance.New(maintenance.Options{
		DriverName: "gpu.example.com", Monitor: w, Events: w,
		GPUs: func() ([]gpu.GPU, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.gpus, w.unknown
		},
		Replaced: func() <-chan struct{} {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.replaced
		},
		Releases: maintenance.ReleasePorts{
			File: maintenance.File{Disk: file, Dir: w.dir},
			Session: func(_ context.Context, until time.Time) {
				stored, err := w.file().Until(time.Now())
				assert.NoError(t, err)
				assert.True(t, stored.Equal(until), "the file says so before the session is closed or opened")
				if until.IsZero() {
					w.note(name + " opens")
					return
				}
				w.note(name + " closes until " + until.UTC().Format(time.TimeOnly))
			},
			Records: func() ([]*checkpoint.Record, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.records, w.unread
			},
			WithGPULock: func(ctx context.Context, _ gpu.UUID, do func(ctx context.Context) error) error {
				if w.locked != nil {
					if err := w.locked(ctx); err != nil {
						return err
					}
				}
				return do(ctx)
			},
			Clients: func(_ context.Context, g *gpu.GPU) ([]maintenance.Client, error) {
				assert.Contains(t, []gpu.UUID{first, second}, g.UUID)
				return w.clients, w.noClients
			},
		},
	})
	c.Start(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, c.Run(ctx)) })
	return &process{Controller: c, w: w, stop: sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})}
}

// lead lets the process lead until the returned function is called.
func (p *process) lead(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var leading sync.WaitGroup
	leading.Go(func() { p.Lead(ctx) })
	return func() {
		cancel()
		leading.Wait()
	}
}

// annotate passes a Node with these annotations.
func (p *process) annotate(annotations map[string]string) {
	p.Node(maintenance.Node{Annotations: annotations})
	synctest.Wait()
}

// leader runs test with a leading process.
func leader(t *testing.T, test func(t *testing.T, w *world, p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		defer p.lead(t)()
		synctest.Wait()
		test(t, w, p)
	})
}

// in is a time in RFC 3339.
func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

var errDisk = errors.New("input/output error")

// requireReleased checks until when the file says that sessions are closed; empty if it does not exist.
func (w *world) requireReleased(t *testing.T, until string) {
	t.Helper()
	stored, err := w.file().Until(time.Now())
	require.NoError(t, err)
	if until == "" {
		assert.NoFileExists(t, w.file().Path())
		return
	}
	assert.Equal(t, until, stored.UTC().Format(time.RFC3339))
}
