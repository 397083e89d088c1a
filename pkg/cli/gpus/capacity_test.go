package gpus

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/screen"
)

// left is the room of a cluster.
func left() *explain.Free {
	nodes := []explain.NodeRoom{{Node: "gpu-a01", Count: 14}, {Node: "gpu-a07", Count: 3}}
	return &explain.Free{
		Rooms: []explain.Room{
			{Class: "by-capacity.gpu.prism.dev", Capacity: "gpu.prism.dev/p1g10gb", Total: 17, Nodes: nodes},
			{Class: "gpu.prism.dev", Resource: "nvidia.com/gpu", Total: 0},
			{Class: "mig-1g-10gb.gpu.prism.dev", Total: 17, Nodes: nodes},
			{Class: "endless.example.com", Total: 1000, Unlimited: true, Nodes: []explain.NodeRoom{{Node: "gpu-a01", Count: 1000}}},
			{Class: "wrong.example.com", Problem: "on node gpu-a01: evaluating an expression: no such key: profile"},
		},
		Stranded: explain.Stranded{Bytes: 30 << 30, MemorySlices: 3, GPUs: 2}, Cordoned: []string{"gpu-a02"},
	}
}

func TestCapacityText_Widths_NumbersWhole(t *testing.T) {
	t.Parallel()
	golden(t, "capacity", capacityText(wide80, left(), false, false))
	golden(t, "capacity-40", capacityText(wide40, left(), false, false))
	golden(t, "capacity-wide", capacityText(wide80, left(), false, true))
	one := left()
	one.Rooms = one.Rooms[2:3]
	golden(t, "capacity-class", capacityText(wide80, one, true, false))
}

func TestCapacityText_ManyNodes_EachLineFits(t *testing.T) {
	t.Parallel()
	free := &explain.Free{Rooms: []explain.Room{{Class: strings.Repeat("long-", 20) + "class"}}}
	for i := range 300 {
		free.Rooms[0].Nodes = append(free.Rooms[0].Nodes, explain.NodeRoom{Node: fmt.Sprintf("node-%s-%d", strings.Repeat("x", 60), i), Count: 56})
		free.Cordoned = append(free.Cordoned, fmt.Sprintf("cordoned-%d", i))
	}
	for _, width := range []int{40, 80} {
		for _, wide := range []bool{false, true} {
			for line := range strings.Lines(capacityText(screen.Screen{Width: width}, free, false, wide)) {
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
			}
		}
	}
}

func TestResolveClass_Names_ClassOrNearest(t *testing.T) {
	t.Parallel()
	name := "nvidia.com/gpu"
	picture := &clusterview.Cluster{Classes: map[string]*resourceapi.DeviceClass{
		"gpu.prism.dev": {Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &name}}, "mig-1g-10gb.gpu.prism.dev": {},
	}}
	for text, want := range map[string]string{"gpu.prism.dev": "gpu.prism.dev", "nvidia.com/gpu": "gpu.prism.dev", "mig-1g-10gb.gpu.prism.dev": "mig-1g-10gb.gpu.prism.dev"} {
		got, err := resolveClass(picture, text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := resolveClass(picture, "mig-1g.10gb.gpu.prism.dev")
	assert.ErrorContains(t, err, "DeviceClass mig-1g.10gb.gpu.prism.dev does not exist")
	assert.ErrorContains(t, err, "mig-1g-10gb.gpu.prism.dev")
}
