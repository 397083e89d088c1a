package prepare

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// wantsCounters is a claim for a device of the node and the counters of a GPU.
func wantsCounters(uid string, i int, devices ...string) *resourceapi.ResourceClaim {
	rc := wants(uid, append(devices, device(i)+"-perfmon")...)
	rc.Status.Allocation.Devices.Results[len(devices)].Pool = gpu.Monitor{}.Pool(nodeName)
	return rc
}

// TestPerfmon_OneHolder_OthersRefused: the counters of a GPU belong to one claim; the GPU and other GPUs do not wait for it.
func TestPerfmon_OneHolder_OthersRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.start(t)
		r := p.mustPrepare(wantsCounters("a", 0))
		assert.Equal(t, []checkpoint.Result{{
			Request: "r0", Pool: nodeName + "/monitor", Device: device(0) + "-perfmon", Type: gpu.TypePerfmon, GPUUUID: uuid(0), PCIBusID: r.Results[0].PCIBusID,
		}}, r.Results)
		assert.Empty(t, r.Steps)
		assert.Equal(t, []string{"a-" + device(0) + "-perfmon-" + string(uuid(0))}, r.CDI.Devices)
		p.mustPrepare(wants("whole", device(0)), "the GPU itself is free")
		p.mustPrepare(wantsCounters("other", 1, device(1)))

		_, err := p.Prepare(t.Context(), wantsCounters("b", 0))
		require.ErrorContains(t, err, `request "r0", device gpu-00000000-perfmon: right to the performance counters of GPU `+string(uuid(0))+" is still held by another claim")
		heldBy(t, err, "a")
		require.NoError(t, p.Unprepare(t.Context(), "whole"))
		_, err = p.Prepare(t.Context(), wantsCounters("b", 0, device(0)))
		require.ErrorContains(t, err, `request "r1", device gpu-00000000-perfmon: right to the performance counters`, "the request that waits is named")
		assert.Nil(t, w.record(t, "b"))

		require.NoError(t, p.Unprepare(t.Context(), "a"))
		p.mustPrepare(wantsCounters("b", 0, device(0)))
		for _, uid := range []string{"b", "other"} {
			require.NoError(t, p.Unprepare(t.Context(), uid))
		}
		w.clean(t)
	})
}

// TestPerfmon_PluginRestarts_HolderKeepsCounters: owners are read from the records.
func TestPerfmon_PluginRestarts_HolderKeepsCounters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		answer := w.start(t).mustPrepare(wantsCounters("a", 0, device(0)))
		p := w.start(t)
		_, err := p.Prepare(t.Context(), wantsCounters("b", 0))
		heldBy(t, err, "a")
		assert.Equal(t, answer.CDI, p.mustPrepare(wantsCounters("a", 0, device(0))).CDI)
	})
}
