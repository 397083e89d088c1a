package explain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// TestOccupied_ManyShares_SearchEnds: of 30 equal shares, 20 must go: there are 30 million sets of them. The pods with the lowest priorities go.
func TestOccupied_ManyShares_SearchEnds(t *testing.T) {
	t.Parallel()
	const shares, gone = 30, 20
	w := newWorld(t)
	w.node("gpu-a01", "h100-80", 1, mpsModes(shares+1))
	for i := range shares {
		p := podOf("web", fmt.Sprint("p-", i), fmt.Sprint("c-", i))
		priority := int32(shares - i)
		p.Spec.Priority = &priority
		w.hold("gpu-a01", claimOf("web", fmt.Sprint("c-", i), sized(request("mps."+driver, 1), "memory", "1Gi")), p)
	}
	sharing := func(e entry) bool { return e.sharing }
	var o *occupied
	for _, pool := range w.solver().Cluster.FindNode("gpu-a01").Pools {
		if with := occupy(pool, latest, func(*clusterview.Pod) bool { return true }); slices.ContainsFunc(with.devices, sharing) {
			o = with
		}
	}
	require.NotNil(t, o)
	place := slices.IndexFunc(o.devices, sharing)
	memory := o.devices[place].Capacity["memory"]
	least := resource.MustParse(fmt.Sprintf("%dGi", shares-gone))
	memory.Value.Sub(least)
	sets := o.fewest(place, demand{requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": memory.Value}, fractional: true})
	require.Len(t, sets, 1)
	require.Len(t, sets[0], gone)
	for _, pod := range sets[0] {
		assert.LessOrEqual(t, podPriority(pod), int32(gone))
	}
}
