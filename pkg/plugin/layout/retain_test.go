package layout

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// small is another placement of the small profile.
const small = first + "-mig-19-0"

// administer makes the first GPU one with two placements of 1g.10gb, and with these pre-created instances.
func (d *fixture) administer(t *testing.T, instances ...gpu.Instance) {
	t.Helper()
	d.machine.Change(t, d.options.Inventory, func() {
		gpus := slices.Clone(d.machine.GPUs)
		m := *gpus[0].MIG
		m.Profiles = slices.Clone(m.Profiles)
		m.Profiles[0].Placements = []gpu.Placement{{Start: 0, Size: 1}, {Start: 6, Size: 1}}
		m.Instances = instances
		gpus[0].MIG = &m
		d.machine.GPUs = gpus
	})
}

// preCreated is a pre-created 1g.10gb at memory slice 6.
var preCreated = gpu.Instance{
	ID: 7, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}, Compute: []gpu.ComputeInstance{{Slices: 1, UUID: "MIG-7"}},
}

// holdsStatic is the record of a claim for a share of the pre-created MIG device.
func holdsStatic() *checkpoint.Record {
	r := holds(ownPool, small6, "1g.10gb")
	r.Results[0].ShareID, r.Results[0].Share = "share-1", &checkpoint.Share{Replicas: 2}
	r.Results[0].MIG.Static, r.Results[0].MIG.Identity = true, gpu.MIGIdentity{GPUInstance: 7, UUID: "MIG-7"}
	return r
}

// TestStaticDevice_GoneWhileARecordNamesIt_Withheld: until the claim is gone or the administrator has made the device again, it is not
// advertised as one that the plugin makes. Devices that would take its place are not advertised either; all other devices of the GPU are.
func TestStaticDevice_GoneWhileARecordNamesIt_Withheld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries           string
		disjoint          bool
		there, gone, free []string
	}{
		"whole": {
			onlyWhole, false, []string{ownPool, small6}, []string{"n0"}, []string{"n0", first},
		},
		"whole and partitioned": {
			both, false, []string{ownPool, small, small6, big}, []string{ownPool, small, big}, []string{ownPool, first, small, small6, big},
		},
		"partitioned": {
			onlyMIG, false, []string{ownPool, small, small6, big}, []string{ownPool, small, big}, []string{ownPool, small, small6, big},
		},
		"another profile": {
			onlyBig, false, []string{ownPool, small6, big}, []string{ownPool, big}, []string{ownPool, big},
		},
		"time-sliced": {
			shared, false, []string{ownPool, small6}, []string{ownPool}, []string{ownPool, first, first + "-timeslice"},
		},
		"without counters": {
			both, true, []string{ownPool, small6, big}, []string{ownPool, big}, []string{ownPool, first},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, c.entries)
				d.administer(t, preCreated)
				d.records = []*checkpoint.Record{holdsStatic()}
				require.True(t, d.load(t))
				d.probe(t)
				if c.disjoint {
					d.CountersUnsupported()
				}
				assert.Equal(t, c.there, d.advertised(t))
				d.administer(t)
				assert.Equal(t, c.gone, d.advertised(t), "while the record is there")
				stop := d.runs(t)
				defer stop()
				after(time.Minute)
				assert.Equal(t, c.gone, d.advertised(t), "however long that is")
				assert.Zero(t, d.now().Status.Changing)

				d.administer(t, preCreated)
				assert.Equal(t, c.there, d.advertised(t), "made again")
				d.administer(t)
				assert.Equal(t, c.gone, d.advertised(t))
				d.records = nil
				after(roundInterval)
				assert.Equal(t, c.free, d.advertised(t), "when the claim is gone")
			})
		})
	}
}

// TestStaticDevice_AnotherInItsPlace_Withheld as long as the device of a recorded claim excludes it.
func TestStaticDevice_AnotherInItsPlace_Withheld(t *testing.T) {
	t.Parallel()
	d := newFixture(t, both)
	d.administer(t, preCreated)
	d.records = []*checkpoint.Record{holdsStatic()}
	d.records[0].Results[0].MIG.Placement, d.records[0].Results[0].Device = gpu.Placement{Size: 1}, small
	require.True(t, d.load(t))
	d.probe(t)
	assert.Equal(t, []string{ownPool, small6}, d.advertised(t), "beside it, and the large one has its memory slice")
	d.records[0].Results[0].MIG.Placement = gpu.Placement{Start: 4, Size: 4}
	d.renew()
	assert.Equal(t, []string{ownPool, small, big}, d.advertised(t))
}

// TestRetain_DeviceOfUnknownType_NothingElseAdvertised: only the version that has recorded it knows which devices it excludes. Nor is an
// MPS share of unknown size advertised again.
func TestRetain_DeviceOfUnknownType_NothingElseAdvertised(t *testing.T) {
	t.Parallel()
	later := holds(ownPool, first+"-later")
	later.Results[0].Type = "later"
	for _, r := range []*checkpoint.Record{later, holdsMPS()} {
		r.Results[0].ShareID, r.Results[0].Share = "share-1", &checkpoint.Share{Replicas: 2}
		for _, entries := range []string{onlyWhole, onlyMIG, both, shared} {
			d := opened(t, entries, r)
			assert.Len(t, d.advertised(t), 1, "the pool alone")
			assert.Len(t, d.now().Devices(), 1, "of the other GPU")
			d.records = nil
			released := func() bool { return d.Snapshot().withholds() && d.Snapshot().released("n0", d.records) }
			assert.True(t, released())
			d.renew()
			assert.Greater(t, len(d.advertised(t)), 1)
			assert.False(t, released(), "once")
		}
	}
}

// TestRetain_Perfmon_NothingWithheld: a claim for the counters of a GPU holds no part of the GPU.
func TestRetain_Perfmon_NothingWithheld(t *testing.T) {
	t.Parallel()
	counters := holds("n0/monitor", first+"-perfmon")
	counters.Results[0].Type = gpu.TypePerfmon
	for _, entries := range []string{onlyWhole, onlyMIG, both, shared} {
		d := opened(t, entries, counters)
		assert.Equal(t, opened(t, entries).advertised(t), d.advertised(t), entries)
		assert.False(t, d.Snapshot().withholds(), entries)
	}
}

// TestReleased_RecordsUnreadable_NothingChanges, because it is not known which devices are still in use.
func TestReleased_RecordsUnreadable_NothingChanges(t *testing.T) {
	t.Parallel()
	r := holds("n0", first)
	r.Results[0].Type = "later"
	d := opened(t, both, r)
	want := d.advertised(t)
	d.options.Records = func() ([]*checkpoint.Record, error) { return nil, errors.New("input/output error") }
	d.write(func(w *worker) { w.round(t.Context()) })
	assert.Equal(t, want, d.advertised(t))
}
