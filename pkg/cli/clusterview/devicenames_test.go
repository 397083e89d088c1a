package clusterview_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

func TestPool_DeviceNames_AsInSlices(t *testing.T) {
	t.Parallel()
	for _, machine := range machines(t) {
		store := clusterview.NewStore()
		for _, slice := range published(t, machine) {
			store.PutSlice(slice)
		}
		for _, p := range store.Cluster().FindNode("node-1").Pools {
			var want []string
			for _, slice := range p.Slices() {
				for i := range slice.Spec.Devices {
					want = append(want, slice.Spec.Devices[i].Name)
				}
			}
			assert.Equal(t, want, p.DeviceNames(), machine)
		}
	}
}
