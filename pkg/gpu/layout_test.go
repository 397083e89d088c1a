package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOfferEqual_DevicesAndPool_Compared(t *testing.T) {
	t.Parallel()
	slices := Offer{Whole: true, MIG: []string{"1g.10gb", "3g.40gb"}}
	shares := func(r Replicas) Offer { return Offer{TimeSlice: &r} }
	for name, c := range map[string]struct {
		a, b Offer
		want bool
	}{
		"nothing, twice":          {Offer{}, Offer{MIG: []string{}}, true},
		"whole or not":            {Offer{Whole: true}, Offer{}, false},
		"same profiles":           {slices, Offer{Whole: true, MIG: []string{"1g.10gb", "3g.40gb"}}, true},
		"fewer profiles":          {slices, Offer{Whole: true, MIG: []string{"1g.10gb"}}, false},
		"another pool":            {Offer{Whole: true}, Offer{Whole: true, Static: true}, false},
		"in parts for two causes": {slices, Offer{Whole: true, Static: true, MIG: slices.MIG}, true},
		"without counters":        {slices, Offer{Whole: true, Disjoint: true, MIG: slices.MIG}, false},
		"same shares":             {shares(Replicas{Count: 2}), shares(Replicas{Count: 2}), true},
		"more shares":             {shares(Replicas{Count: 2}), shares(Replicas{Count: 3}), false},
		"shares or none":          {shares(Replicas{Count: 2}), Offer{Static: true}, false},
		"another name":            {shares(Replicas{Count: 2}), shares(Replicas{Count: 2, ShareName: "gpu-shared"}), false},
		"another interval":        {shares(Replicas{Count: 2}), shares(Replicas{Count: 2, Interval: IntervalLong}), false},
		"shared slices":           {slices, Offer{Whole: true, MIG: slices.MIG, MIGReplicas: map[string]int{"1g.10gb": 2}}, false},
	} {
		assert.Equal(t, c.want, c.a.Equal(c.b), name)
		assert.Equal(t, c.want, c.b.Equal(c.a), name)
	}
}
