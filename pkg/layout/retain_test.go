package driver

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

// administer makes the first GPU one with two placements of 1g.10gb, and with these instances of an administrator.
func (d *desk) administer(t *testing.T, instances ...gpu.Instance) {
	t.Helper()
	d.machine.change(t, d.ports.Inventory, func() {
		gpus := slices.Clone(d.machine.gpus)
		m := *gpus[0].MIG
		m.Profiles = slices.Clone(m.Profiles)
		m.Profiles[0].Placements = []gpu.Placement{{Start: 0, Size: 1}, {Start: 6, Size: 1}}
		m.Instances = instances
		gpus[0].MIG = &m
		d.machine.gpus = gpus
	})
}

// byHand is the administrator's 1g.10gb at memory slice 6.
var byHand = gpu.Instance{
	ID: 7, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}, Compute: []gpu.ComputeInstance{{Slices: 1, UUID: "MIG-7"}},
}

// holdsStatic is the record of a claim that has a share of the administrator's MIG device.
func holdsStatic() *checkpoint.Record {
	r := holds(ownPool, oneSlice, "1g.10gb")
	r.Results[0].ShareID, r.Results[0].Share = "share-1", &checkpoint.Share{Replicas: 2}
	r.Results[0].MIG.Static, r.Results[0].MIG.Identity = true, gpu.MIGIdentity{GPUInstance: 7, UUID: "MIG-7"}
	return r
}

// TestStaticDevice_GoneWhileARecordNamesIt_Withheld: it is not advertised as one that the plugin makes, nor is anything that would take
// its place, and everything else of the GPU is, until the claim is gone or the administrator has made it again.
func TestStaticDevice_GoneWhileARecordNamesIt_Withheld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries           string
		disjoint          bool
		there, gone, free []string
	}{
		"whole": {
			onlyWhole, false, []string{ownPool, oneSlice}, []string{"n0"}, []string{"n0", first},
		},
		"whole and partitioned": {
			both, false, []string{ownPool, small, oneSlice, big}, []string{ownPool, small, big}, []string{ownPool, first, small, oneSlice, big},
		},
		"partitioned": {
			onlySlices, false, []string{ownPool, small, oneSlice, big}, []string{ownPool, small, big}, []string{ownPool, small, oneSlice, big},
		},
		"another profile": {
			onlyBig, false, []string{ownPool, oneSlice, big}, []string{ownPool, big}, []string{ownPool, big},
		},
		"time-sliced": {
			turns, false, []string{ownPool, oneSlice}, []string{ownPool}, []string{ownPool, first, first + "-timeslice"},
		},
		"without counters": {
			both, true, []string{ownPool, oneSlice, big}, []string{ownPool, big}, []string{ownPool, first},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, c.entries)
				d.administer(t, byHand)
				d.records = []*checkpoint.Record{holdsStatic()}
				require.True(t, d.Load(t.Context()))
				d.Probe(t.Context())
				if c.disjoint {
					d.Disjoin()
				}
				assert.Equal(t, c.there, d.offered(t))
				d.administer(t)
				assert.Equal(t, c.gone, d.offered(t), "while the record is there")
				stop := d.runs(t)
				defer stop()
				after(time.Minute)
				assert.Equal(t, c.gone, d.offered(t), "however long that is")
				assert.Zero(t, d.Changing())

				d.administer(t, byHand)
				assert.Equal(t, c.there, d.offered(t), "made again")
				d.administer(t)
				assert.Equal(t, c.gone, d.offered(t))
				d.records = nil
				after(rereadMax)
				assert.Equal(t, c.free, d.offered(t), "when the claim is gone")
			})
		})
	}
}

// TestStaticDevice_AnotherInItsPlace_Withheld as long as a claim is recorded that it excludes.
func TestStaticDevice_AnotherInItsPlace_Withheld(t *testing.T) {
	t.Parallel()
	d := newDesk(t, both)
	d.administer(t, byHand)
	d.records = []*checkpoint.Record{holdsStatic()}
	d.records[0].Results[0].MIG.Placement, d.records[0].Results[0].Device = gpu.Placement{Size: 1}, small
	require.True(t, d.Load(t.Context()))
	d.Probe(t.Context())
	assert.Equal(t, []string{ownPool, oneSlice}, d.offered(t), "beside it, and the large one has its memory slice")
	d.records[0].Results[0].MIG.Placement = gpu.Placement{Start: 4, Size: 4}
	d.seen = nil
	assert.Equal(t, []string{ownPool, small, big}, d.offered(t))
}

// TestUnknownType_NothingBesideIt: only the version that has recorded it knows what it excludes.
func TestUnknownType_NothingBesideIt(t *testing.T) {
	t.Parallel()
	for _, entries := range []string{onlyWhole, onlySlices, both, turns} {
		r := holds(ownPool, first+"-mps")
		r.Results[0].Type, r.Results[0].ShareID, r.Results[0].Share = "mps", "share-1", &checkpoint.Share{Replicas: 2}
		d := opened(t, entries, r)
		assert.Len(t, d.offered(t), 1, "the pool alone")
		assert.Len(t, d.Devices(), 1, "of the other GPU")
		d.records = nil
		assert.True(t, d.freed())
		assert.Greater(t, len(d.offered(t)), 1)
		assert.False(t, d.freed(), "once")
	}
}

// TestFreed_RecordsUnreadable_NothingChanges.
func TestFreed_RecordsUnreadable_NothingChanges(t *testing.T) {
	t.Parallel()
	r := holds("n0", first)
	r.Results[0].Type = "later"
	d := opened(t, both, r)
	want := d.offered(t)
	d.ports.Records = func() ([]*checkpoint.Record, error) { return nil, errors.New("input/output error") }
	assert.False(t, d.freed())
	assert.Equal(t, want, d.offered(t))
}
