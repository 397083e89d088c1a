package driver

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
	"github.com/prism-gpu/prism/pkg/kube"
)

// desk is what an Offering is asked to offer, and what it works with.
type desk struct {
	*Offering

	machine *machine
	entries string
	read    error
	records []*checkpoint.Record
	unknown error // why it is not known whether the API server keeps counters
	asked   int
	told    nodeEvents
	watched bool // what the configuration is read from
	reads   int

	forgetful bool  // the scheduler does not count shares
	unread    error // why that is not known

	saved     *memory
	allocated map[gpu.PoolDevice]bool // without a record
	listed    int                     // how often that was asked
	untainted bool                    // the API server has no taints yet
	dead      error                   // it does not answer
	lost      gpu.DeviceName          // a device of the node's pool whose taint the API server does not have
}

// newDesk has a GPU that can be cut and one that cannot.
func newDesk(t *testing.T, entries string) *desk {
	t.Helper()
	m := twoGPUs()
	m.gpus[0].Product = gpu.Product{Name: "NVIDIA H100", MIGCapable: true}
	m.gpus[0].MIG = &gpu.MIG{Profiles: []gpu.MIGProfile{
		{ID: 19, Name: "1g.10gb", Slices: 1, Placements: []gpu.Placement{{Start: 6, Size: 1}}},
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}}},
	}}
	d := &desk{machine: m, entries: entries, told: make(nodeEvents, 64), saved: &memory{}}
	d.restart(t)
	return d
}

// restart begins anew with what was saved.
func (d *desk) restart(t *testing.T) {
	t.Helper()
	m := d.machine
	d.Offering = NewOffering(OfferingPorts{
		Inventory: m.look(t), NodeName: "n0", Events: d.told, Watched: d.watched,
		Read: func(ctx context.Context) (*v1alpha1.NodeConfig, error) {
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
		},
		Passing: func(err error) bool { return errors.Is(err, errLater) },
		Counters: func(ctx context.Context) (bool, error) {
			return ask(ctx, func() (bool, error) {
				if d.asked++; d.asked > 1000 {
					return true, nil // time stands still while nobody waits
				}
				return true, d.unknown
			})
		},
		Shares: func(ctx context.Context) (bool, error) {
			return ask(ctx, func() (bool, error) { return !d.forgetful, d.unread })
		},
		Records: func() ([]*checkpoint.Record, error) {
			return ask(context.Background(), func() ([]*checkpoint.Record, error) { return d.records, nil })
		},
		Saved: d.saved,
		Tainted: func(ctx context.Context) (map[gpu.PoolDevice]bool, error) {
			tainted := d.published(t)
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
	})
}

// page is the only page of the cluster's claims.
func (d *desk) page(query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
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

// published is what the API server has of the first GPU.
func (d *desk) published(t *testing.T) map[gpu.PoolDevice]bool {
	present, err := d.Present()
	assert.NoError(t, err)
	g := &present.Node.GPUs[0]
	offer := present.Layout.Of(g)
	tainted := map[gpu.PoolDevice]bool{}
	fakes.Lock()
	defer fakes.Unlock()
	for _, device := range offer.Devices(g) {
		place := gpu.PoolDevice{Pool: offer.Pool("n0", g), Device: device.Name()}
		tainted[place] = present.Leaving[place] && !d.untainted
	}
	return tainted
}

// runs runs it as the one that publishes until the answer is called.
func (d *desk) runs(t *testing.T) (stop func()) {
	t.Helper()
	d.Lead(true)
	return inBackground(t, func(ctx context.Context) error { return d.Run(ctx, func() {}) })
}

// after lets time pass, in which fakes may read what the test has set.
func after(pass time.Duration) {
	handOver()
	time.Sleep(pass)
	synctest.Wait()
}

// opened is a desk that has read its configuration.
func opened(t *testing.T, entries string, records ...*checkpoint.Record) *desk {
	t.Helper()
	d := newDesk(t, entries)
	d.records = records
	require.True(t, d.Load(t.Context()))
	d.Probe(t.Context())
	return d
}

// offered lists what the first GPU is offered as, with its pool.
func (d *desk) offered(t *testing.T) []string {
	t.Helper()
	node, layout, err := d.Now()
	require.NoError(t, err)
	g := &node.GPUs[0]
	offer := layout.Of(g)
	names := []string{offer.Pool("n0", g)}
	for _, device := range offer.Devices(g) {
		names = append(names, string(device.Name()))
	}
	return names
}

// events are what was told since.
func (d *desk) events() (notes []string) {
	for {
		select {
		case note := <-d.told:
			notes = append(notes, note)
		default:
			return notes
		}
	}
}

// good is told when what was wrong is no more.
const good = "Normal NodeConfigAccepted Configure: The node's configuration is good again; GPUs change to it as they become free"

const (
	firstUUID = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	first     = "gpu-aaaaaaaa"
	ownPool   = "n0/" + first
	oneSlice  = first + "-mig-19-6"
	big       = first + "-mig-9-0"

	onlyWhole  = `[{}]`
	onlySlices = `[{select: {indices: [0]}, modes: [mig]}]`
	both       = `[{select: {indices: [0]}, modes: [whole, mig]}]`
	turns      = `[{select: {indices: [0]}, modes: [whole, timeslice], timeSlice: {replicas: 3}}]`
	onlyBig    = `[{select: {indices: [0]}, modes: [mig], mig: {profiles: [3g.40gb]}}]`
)

// holds is the record of a claim that has a device of the first GPU.
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

// holdsShare is the record of a claim that has one of three shares of the first GPU.
func holdsShare() *checkpoint.Record {
	r := holds(ownPool, first+"-timeslice")
	r.Results[0].Type, r.Results[0].ShareID, r.Results[0].Share = gpu.TypeTimeSlice, "share-1", &checkpoint.Share{Replicas: 3, Name: "gpu-shared"}
	return r
}
