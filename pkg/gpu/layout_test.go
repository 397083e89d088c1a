package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLayoutEqual_DevicesAndPool_Compared(t *testing.T) {
	t.Parallel()
	partitioned := Modes{Whole: true, MIG: []string{"1g.10gb", "3g.40gb"}}
	shares := func(r Replicas) Modes { return Modes{TimeSlice: &r} }
	mps := func(m MPSSharing) Modes { return Modes{MPS: &m} }
	two := MPSSize{Replicas: 2, Memory: MPSMemory{Max: 2 << 30}}
	for name, c := range map[string]struct {
		a, b Modes
		want bool
	}{
		"nothing, twice":             {Modes{}, Modes{MIG: []string{}}, true},
		"whole or not":               {Modes{Whole: true}, Modes{}, false},
		"same profiles":              {partitioned, Modes{Whole: true, MIG: []string{"1g.10gb", "3g.40gb"}}, true},
		"fewer profiles":             {partitioned, Modes{Whole: true, MIG: []string{"1g.10gb"}}, false},
		"another pool":               {Modes{Whole: true}, Modes{Whole: true, Static: true}, false},
		"partitioned for two causes": {partitioned, Modes{Whole: true, Static: true, MIG: partitioned.MIG}, true},
		"without counters":           {partitioned, Modes{Whole: true, Disjoint: true, MIG: partitioned.MIG}, false},
		"same shares":                {shares(Replicas{Count: 2}), shares(Replicas{Count: 2}), true},
		"more shares":                {shares(Replicas{Count: 2}), shares(Replicas{Count: 3}), false},
		"shares or none":             {shares(Replicas{Count: 2}), Modes{Static: true}, false},
		"another name":               {shares(Replicas{Count: 2}), shares(Replicas{Count: 2, ShareName: "gpu-shared"}), false},
		"another interval":           {shares(Replicas{Count: 2}), shares(Replicas{Count: 2, Interval: IntervalLong}), false},
		"MPS, or time-slicing":       {mps(MPSSharing{MPSSize: two}), shares(Replicas{Count: 2}), false},
		"MPS or not":                 {mps(MPSSharing{MPSSize: two}), Modes{Static: true}, false},
		"same MPS shares":            {mps(MPSSharing{MPSSize: two}), mps(MPSSharing{MPSSize: two}), true},
		"larger MPS shares":          {mps(MPSSharing{MPSSize: two}), mps(MPSSharing{MPSSize: MPSSize{Replicas: 2, Memory: MPSMemory{Max: 4 << 30}}}), false},
		"MPS shares called":          {mps(MPSSharing{MPSSize: two}), mps(MPSSharing{MPSSize: two, ShareName: "a"}), false},
		"MPS settings":               {mps(MPSSharing{MPSSize: two}), mps(MPSSharing{MPSSize: two, ShmBytes: 1, Namespaces: []string{"a"}}), true},
		"shared MIG devices":         {partitioned, Modes{Whole: true, MIG: partitioned.MIG, MIGReplicas: map[string]int{"1g.10gb": 2}}, false},
	} {
		assert.Equal(t, c.want, c.a.Equal(c.b), name)
		assert.Equal(t, c.want, c.b.Equal(c.a), name)
	}
}
