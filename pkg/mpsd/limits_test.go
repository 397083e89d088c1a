package mpsd

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestInForce_ExactOrRounded_Accepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		memory     int64
		percentage int
		reported   gpu.MPSLimits
		want       bool
	}{
		{81037, 50, gpu.MPSLimits{MemoryMiB: 81037, ActiveThreadPercentage: 50}, true},
		{81037, 50, gpu.MPSLimits{MemoryMiB: 79 << 10, ActiveThreadPercentage: 50}, true},
		{81037, 50, gpu.MPSLimits{MemoryMiB: 80 << 10, ActiveThreadPercentage: 50}, false},
		{81037, 50, gpu.MPSLimits{MemoryMiB: 0, ActiveThreadPercentage: 50}, false},
		{700, 0, gpu.MPSLimits{MemoryMiB: 700}, true},
		{700, 0, gpu.MPSLimits{MemoryMiB: 0}, false},
		{0, 0, gpu.MPSLimits{}, true},
		{0, 0, gpu.MPSLimits{MemoryMiB: 1}, false},
		{0, 33, gpu.MPSLimits{ActiveThreadPercentage: 32.6}, true},
		{0, 33, gpu.MPSLimits{ActiveThreadPercentage: 34}, true},
		{0, 33, gpu.MPSLimits{ActiveThreadPercentage: 31.9}, false},
		{0, 1, gpu.MPSLimits{ActiveThreadPercentage: 1.5}, true},
		{0, 1, gpu.MPSLimits{}, false},
		{0, 0, gpu.MPSLimits{ActiveThreadPercentage: 1}, false},
		{0, 99, gpu.MPSLimits{ActiveThreadPercentage: 100}, true},
	} {
		spec := gpu.MPSDaemonSpec{MemoryMiB: c.memory, ActiveThreadPercentage: c.percentage}
		assert.Equal(t, c.want, inForce(spec, c.reported), "%d MiB, %d %%: %+v", c.memory, c.percentage, c.reported)
	}
}
