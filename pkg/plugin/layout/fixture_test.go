package layout

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
)

// fixture is a Controller of a node with two GPUs, and its options.
type fixture struct {
	*Controller

	machine *fakes.Machine
	entries string // of the configuration
	read    error  // why that cannot be read
	reads   int
	records []*checkpoint.Record
	watched bool // whether the source of the configuration is watched
	written fakes.Events
	saved   *memory
	modes   []gpu.Mode
	server
}

// changeWait is the time after which a change of the configuration of node n0 was read.
var changeWait = debounce + phase("n0", pageInterval) + time.Millisecond

// server holds the answers of the API server.
type server struct {
	unknown     error // why it is not known whether it stores counters
	probes      int
	uncountered bool   // it stores no counters
	probed      []bool // the arguments of the calls of Probed
	uncounted   bool   // the scheduler does not count shares
	sharesError error  // why that is not known

	allocated map[gpu.PoolDevice]bool // without a record
	listed    int                     // how many pages were read
	untainted bool                    // it has stored no taints yet
	dead      error                   // it does not answer
	lost      gpu.DeviceName          // a device of the node's pool whose taint it has not stored
}

// newFixture creates a GPU that can be partitioned and one that cannot.
func newFixture(t *testing.T, entries string) *fixture {
	t.Helper()
	m := fakes.TwoGPUs()
	for i := range m.GPUs {
		m.GPUs[i].Capacity.MemoryBytes = 80 << 30
	}
	m.GPUs[0].Product = gpu.Product{Name: "NVIDIA H100", MIGCapable: true}
	m.GPUs[0].MIG = &gpu.MIG{Profiles: []gpu.MIGProfile{
		{ID: 19, Name: "1g.10gb", Slices: 1, Placements: []gpu.Placement{{Start: 6, Size: 1}}},
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}}},
	}}
	d := &fixture{machine: m, entries: entries, written: make(fakes.Events, 64), saved: &memory{}}
	d.restart(t)
	return d
}

// restart begins again from the saved state.
func (d *fixture) restart(t *testing.T) {
	t.Helper()
	d.Controller = New(Options{
		Inventory: d.machine.Inventory(t), NodeName: "n0", Events: d.written, Store: d.saved, Modes: d.modes,
		Config: ConfigPorts{
			Read: d.config(t), Retryable: func(err error) bool { return errors.Is(err, errLater) }, Watched: d.watched,
		},
		API: APIPorts{
			PartitionableDevices: func(ctx context.Context) (bool, error) {
				return ask(ctx, func() (bool, error) {
					if d.probes++; d.probes > 1000 {
						return true, nil // time stands still while nothing waits
					}
					return !d.uncountered, d.unknown
				})
			},
			DeviceTaints: func(ctx context.Context) (bool, error) {
				return ask(ctx, func() (bool, error) { return !d.untainted, d.unknown })
			},
			Probed: func(taints bool) { d.probed = append(d.probed, taints) },
			CountsShares: func(ctx context.Context) (bool, error) {
				return ask(ctx, func() (bool, error) { return !d.uncounted, d.sharesError })
			},
			Tainted: func(ctx context.Context) (map[gpu.PoolDevice]bool, error) {
				tainted := d.stored(t)
				return ask(ctx, func() (map[gpu.PoolDevice]bool, error) {
					if d.lost != "" {
						tainted[gpu.PoolDevice{Pool: "n0", Device: d.lost}] = false
					}
					return tainted, d.dead
				})
			},
			Allocated: func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
				return ask(ctx, func() (*kube.AllocatedPage, error) { return d.page(query) })
			},
		},
		Records: func() ([]*checkpoint.Record, error) {
			return ask(context.Background(), func() ([]*checkpoint.Record, error) { return d.records, nil })
		},
	})
}

// config reads the fixture's configuration.
func (d *fixture) config(t *testing.T) func(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	return func(ctx context.Context) (*v1alpha1.NodeConfig, error) {
		return ask(ctx, func() (*v1alpha1.NodeConfig, error) {
			d.reads++
			if d.read != nil || d.entries == "" {
				return nil, d.read
			}
			c, err := v1alpha1.DecodeNodeConfig([]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: " + d.entries))
			require.NoError(t, err)
			c.Default()
			return c, nil
		})
	}
}

// write does something in the place of the goroutine of Run, which does not run.
func (d *fixture) write(do func(w *worker)) {
	d.writing <- struct{}{}
	defer func() { <-d.writing }()
	do(d.worker)
}

// load reads the configuration, and reports whether it is valid.
func (d *fixture) load(t *testing.T) bool {
	t.Helper()
	config, err := d.options.Config.Read(t.Context())
	d.write(func(w *worker) {
		w.state.config.take(t.Context(), d.options.Config, config, err)
		w.output.stale = true
		w.update()
	})
	return err == nil
}

// probe probes the API server if that is due.
func (d *fixture) probe(t *testing.T) {
	t.Helper()
	d.write(func(w *worker) {
		w.state.capabilities.retry.Reset()
		w.probe(t.Context())
		w.update()
	})
}

// renew computes the layout again.
func (d *fixture) renew() {
	d.write(func(w *worker) { w.output.stale = true; w.update() })
}

// now is the snapshot when everything that has happened was taken up.
func (d *fixture) now() *Snapshot {
	select {
	case d.writing <- struct{}{}:
		d.worker.update()
		<-d.writing
	default:
		synctest.Wait()
	}
	return d.Snapshot()
}

// page is the only page of the cluster's claims.
func (d *fixture) page(query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	d.listed++
	if d.dead != nil {
		return nil, d.dead
	}
	page := &kube.AllocatedPage{Devices: map[gpu.PoolDevice]bool{}}
	for at := range d.allocated {
		if query.Devices[at] {
			page.Devices[at] = true
		}
	}
	return page, nil
}

// stored lists the devices of the first GPU that the API server has stored.
func (d *fixture) stored(t *testing.T) map[gpu.PoolDevice]bool {
	present := d.output.latest.Load()
	assert.NoError(t, present.Err)
	g := &present.Node.GPUs[0]
	as := present.Layout.Of(g)
	tainted := map[gpu.PoolDevice]bool{}
	guard.Lock()
	defer guard.Unlock()
	for _, device := range as.Devices(g) {
		place := gpu.PoolDevice{Pool: as.Pool("n0", g), Device: device.Name()}
		tainted[place] = present.Leaving[place] && !d.untainted
	}
	return tainted
}

// runs runs it as the leading process until stop is called.
func (d *fixture) runs(t *testing.T) (stop func()) {
	t.Helper()
	d.Lead(true)
	return fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() {}) })
}

// after lets time pass, during which fakes may read values that the test has set.
func after(pass time.Duration) {
	handOver()
	time.Sleep(pass)
	synctest.Wait()
}

// opened is a fixture that has read its configuration.
func opened(t *testing.T, entries string, records ...*checkpoint.Record) *fixture {
	t.Helper()
	d := newFixture(t, entries)
	d.records = records
	require.True(t, d.load(t))
	d.probe(t)
	return d
}

// advertised lists the devices that the first GPU is advertised as, with its pool.
func (d *fixture) advertised(t *testing.T) []string {
	t.Helper()
	s := d.now()
	require.NoError(t, s.Err)
	g := &s.Node.GPUs[0]
	as := s.Layout.Of(g)
	names := []string{as.Pool("n0", g)}
	for _, device := range as.Devices(g) {
		names = append(names, string(device.Name()))
	}
	return names
}

// events returns the events since its last call.
func (d *fixture) events() []string { return d.written.Written() }

// valid is the Event when nothing is wrong any more.
const valid = "Normal NodeConfigAccepted Configure: The node's configuration is valid again; GPUs change to it as their devices are released"

const (
	firstUUID = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	first     = "gpu-aaaaaaaa"
	ownPool   = "n0/" + first
	small6    = first + "-mig-19-6"
	big       = first + "-mig-9-0"

	onlyWhole = `[{}]`
	onlyMIG   = `[{select: {indices: [0]}, modes: [mig]}]`
	both      = `[{select: {indices: [0]}, modes: [whole, mig]}]`
	shared    = `[{select: {indices: [0]}, modes: [whole, timeslice], timeSlice: {replicas: 3}}]`
	onlyBig   = `[{select: {indices: [0]}, modes: [mig], mig: {profiles: [3g.40gb]}}]`
)

// holds is the record of a claim for a device of the first GPU.
func holds(pool, device string, profile ...string) *checkpoint.Record {
	result := checkpoint.Result{Pool: pool, Device: device, GPUUUID: firstUUID, Type: gpu.TypeGPU}
	for _, name := range profile {
		result.Type, result.MIG = gpu.TypeMIG, &checkpoint.MIG{Profile: 19, Name: name, Placement: gpu.Placement{Start: 6, Size: 1}}
		if name == "3g.40gb" {
			result.MIG.Profile, result.MIG.Placement = 9, gpu.Placement{Size: 4}
		}
	}
	return &checkpoint.Record{State: checkpoint.Done, Results: []checkpoint.Result{result}}
}

// holdsShare is the record of a claim for one of three shares of the first GPU.
func holdsShare() *checkpoint.Record {
	r := holds(ownPool, first+"-timeslice")
	r.Results[0].Type, r.Results[0].ShareID, r.Results[0].Share = gpu.TypeTimeSlice, "share-1", &checkpoint.Share{Replicas: 3, Name: "gpu-shared"}
	return r
}
