package prepare

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// newShared is a world whose first GPU is advertised whole and as three time-sliced shares. With static it has only a static MIG device,
// at memory slice 6, with two replicas.
func newShared(static bool) (*world, *migDriver) {
	w, c := newPartitionable(1)
	modes := w.layout[uuid(0)]
	modes.TimeSlice, modes.MIGReplicas = &gpu.Replicas{Count: 3, ShareName: "gpu-shared"}, map[string]int{"1g.10gb": 2}
	w.layout[uuid(0)] = modes
	if static {
		c.administer(7, "MIG-7", true)
	}
	return w, c
}

// wantsShare is a claim for shares of a device of the first GPU, each for a request of its own.
func wantsShare(uid string, devices ...string) *resourceapi.ResourceClaim {
	rc := wants(uid, devices...)
	for i := range rc.Status.Allocation.Devices.Results {
		result := &rc.Status.Allocation.Devices.Results[i]
		result.Pool, result.ShareID = nodeName+"/"+device(0), new(types.UID(fmt.Sprintf("%s%d", uid, i)))
	}
	return rc
}

var share = device(0) + "-timeslice"

// Shares of one GPU are prepared together and exclude its other devices, before and after a restart.
func TestPrepare_SharesOfOneGPU_Prepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newShared(false)
		p := c.startWithMIG(t)
		for uid, devices := range map[string][]string{"a": {share}, "b": {share, share}} {
			r := p.mustPrepare(wantsShare(uid, devices...))
			assert.Len(t, r.CDI.Devices, len(devices))
		}
		w.events()
		for _, process := range []*process{p, c.startWithMIG(t)} {
			for _, placed := range []string{"", "19-6"} {
				_, err := process.Prepare(t.Context(), wantsOf("c", placed))
				require.ErrorContains(t, err, "GPU "+string(uuid(0))+" is still held by another claim")
			}
			assert.Empty(t, w.events(), "what is held is not touched")
		}
		p.mustPrepare(wantsShare("d", share))
		for _, uid := range []string{"a", "b", "d"} {
			_, err := p.Prepare(t.Context(), wantsOf("c", ""))
			require.Error(t, err)
			require.NoError(t, p.Unprepare(t.Context(), uid))
		}
		p.mustPrepare(wantsOf("c", ""), "the last one gives the GPU back")
		_, err := p.Prepare(t.Context(), wantsShare("a", share))
		heldBy(t, err, "c")
		require.NoError(t, p.Unprepare(t.Context(), "c"))
		p.mustPrepare(wantsOf("e", "19-6"))
		_, err = p.Prepare(t.Context(), wantsShare("a", share))
		heldBy(t, err, "e")
	})
}

// A static MIG device is shared by the claims for its shares, and exclusive to a claim for the device itself.
func TestPrepare_SharesOfStaticMIGDevice_Prepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newShared(true)
		p := c.startWithMIG(t)
		for _, uid := range []string{"a", "b"} {
			r := p.mustPrepare(wantsShare(uid, migName("19-6")))
			assert.Equal(t, &checkpoint.Share{Replicas: 2}, r.Results[0].Share)
			assert.Equal(t, []string{uid + "-" + migName("19-6") + "-" + uid + "0-MIG-7"}, r.CDI.Devices)
		}
		_, err := p.Prepare(t.Context(), wantsOf("c", "19-6"))
		require.ErrorContains(t, err, "required MIG placement on GPU "+string(uuid(0))+" is still held by another claim")
		p.mustPrepare(wantsOf("d", "9-0"))
		for _, uid := range []string{"a", "b"} {
			require.NoError(t, p.Unprepare(t.Context(), uid))
		}
		p.mustPrepare(wantsOf("c", "19-6"))
		_, err = p.Prepare(t.Context(), wantsShare("a", migName("19-6")))
		heldBy(t, err, "c")
		require.NoError(t, p.Unprepare(t.Context(), "c"))
		require.NoError(t, p.Unprepare(t.Context(), "d"))
		w.clean(t)
	})
}

// TestShares_OfAnotherKind_ExcludeEachOther: a kind of sharing that a later version adds is no time-slicing.
func TestShares_OfAnotherKind_ExcludeEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newShared(false)
		require.NoError(t, records{w}.Put(&checkpoint.Record{
			Claim: checkpoint.Claim{UID: "later", Namespace: "default", Name: "claim-later"}, BootID: w.boot, State: checkpoint.Done,
			Results: []checkpoint.Result{{
				Pool: nodeName + "/" + device(0), Device: device(0) + "-mps", Type: "mps", ShareID: "1", Share: &checkpoint.Share{Replicas: 3}, GPUUUID: uuid(0),
			}},
			CDI: checkpoint.CDI{Kind: "k8s.gpu.prism.dev/claim", Devices: []string{"later-mps"}},
		}))
		p := c.startWithMIG(t)
		for _, rc := range []*resourceapi.ResourceClaim{wantsShare("a", share), wantsOf("b", "19-6"), wantsOf("c", "")} {
			_, err := p.Prepare(t.Context(), rc)
			require.ErrorContains(t, err, "is still held by")
		}
		p.mustPrepare(wants("see", monitor), "monitoring is possible")
	})
}
