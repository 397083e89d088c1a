package publish_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestMemoryEnforcement_EachFamily_AsShared: hardware limits the memory of a device for one claim, MPS the memory of its clients, and
// nothing the memory of other devices.
func TestMemoryEnforcement_EachFamily_AsShared(t *testing.T) {
	t.Parallel()
	static, shared := sharedMIGDevice(t)
	exclusive := gpu.Layout{static.GPUs[0].UUID: {MIG: []string{"3g.40gb"}}}
	l40s := node(t, "l40s", 1)
	all := mpsLayout(l40s, mpsOf(1, 1), andWhole, func(o *gpu.Modes) { o.TimeSlice = &gpu.Replicas{Count: 2} })
	for name, c := range map[string]struct {
		node   *gpu.Node
		layout gpu.Layout
		want   map[string]string
	}{
		"shares":                           {l40s, all, map[string]string{"gpu": "hardware", "timeslice": "none", "mps": "cooperative"}},
		"MIG devices for several claims":   {static, shared, map[string]string{"mig": "none"}},
		"MIG devices for one claim":        {static, exclusive, map[string]string{"mig": "hardware"}},
		"whole GPUs in the pool of a node": {l40s, nil, map[string]string{"gpu": "hardware"}},
	} {
		got := map[string]string{}
		for _, d := range devicesIn(poolsOf(c.node, c.layout)) {
			if enforcement, published := d.Attributes["memoryEnforcement"]; published { // not of MIG devices that are made for a claim
				got[*d.Attributes["type"].StringValue] = *enforcement.StringValue
			}
		}
		assert.Equal(t, c.want, got, name)
	}
}
