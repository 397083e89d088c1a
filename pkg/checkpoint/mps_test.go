package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// mps is the record of a claim for two of three MPS shares of a GPU, one for each of its requests.
func mps() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000003")
	r.Results = append(r.Results, r.Results[0])
	r.CDI.Devices = append(r.CDI.Devices, r.CDI.Devices[0]+"-2")
	for i, id := range []string{"share-1", "share-2"} {
		result := &r.Results[i]
		result.Type, result.Device, result.ShareID = gpu.TypeMPS, "gpu-3f2a9c1b-mps", id
		result.Consumed, result.Share = map[string]string{"shares": "1", "memory": "2Gi"}, &Share{Replicas: 3, Name: "gpu-2gb"}
		result.Extensions = Extensions{"mps": json.RawMessage(`{"daemon":"3f2a9c1b","memoryMiB":2048}`)}
		r.Steps = append(r.Steps, Step{
			Kind: "mps", Target: result.GPUUUID, Device: result.Device, ShareID: id,
			Args: json.RawMessage(`{"daemon":"3f2a9c1b","memoryMiB":2048,"default":{"memoryMiB":2048,"shmBytes":1073741824}}`),
		})
	}
	r.Results[1].Extensions["mps"] = json.RawMessage(`{"daemon":"3f2a9c1b","memoryMiB":2048,"activeThreadPercentage":50}`)
	return r
}

// The steps of two shares of one device belong to their own result; a step without a share belongs to the device.
func TestRecord_TwoSharesOfOneDevice_StepsDistinguished(t *testing.T) {
	t.Parallel()
	r := mps()
	for i := range r.Steps {
		s := &r.Steps[i]
		assert.Equal(t, i, r.ResultOf(s))
		assert.Equal(t, []int{i}, r.ResultsOf(s))
		assert.Equal(t, -1, r.MIGResultOf(s), "it makes no MIG device")
	}
	device := Step{Kind: "mode", Target: r.Steps[0].Target, Device: r.Steps[0].Device}
	assert.Equal(t, 0, r.ResultOf(&device))
	assert.Equal(t, []int{0, 1}, r.ResultsOf(&device))
	other := r.Steps[1]
	other.ShareID = "share-3"
	assert.Equal(t, -1, r.ResultOf(&other))
	assert.Empty(t, r.ResultsOf(&other))
	r.Results[1].MIG = &MIG{Profile: 19}
	assert.Equal(t, 1, r.MIGResultOf(&r.Steps[1]))
	assert.Equal(t, -1, r.MIGResultOf(&r.Steps[0]), "the MIG device is of the other share")
	assert.Equal(t, []gpu.UUID{r.Results[0].GPUUUID}, r.LockedGPUs())
}

// TestStep_OfTheGPU_NotOfItsCounters: a claim with the counters of a GPU does not use the GPU with them.
func TestStep_OfTheGPU_NotOfItsCounters(t *testing.T) {
	t.Parallel()
	r := &Record{Results: []Result{
		{Device: "gpu-1-perfmon", Type: gpu.TypePerfmon, GPUUUID: "GPU-1"}, {Device: "gpu-1", Type: gpu.TypeGPU, GPUUUID: "GPU-1"},
	}}
	assert.Equal(t, []int{1}, r.ResultsOf(&Step{Kind: "interval", Target: "GPU-1"}))
	assert.Equal(t, []gpu.UUID{"GPU-1"}, r.LockedGPUs())
}
