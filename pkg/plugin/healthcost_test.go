package plugin

import (
	"context"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// syncs counts the operations of a disk that wait for stable storage.
type syncs struct {
	disk.Files
	count atomic.Int64
}

func (s *syncs) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	if durable {
		s.count.Add(1)
	}
	return s.Files.Write(path, data, perm, durable)
}

func (s *syncs) SyncDir(dir string) error {
	s.count.Add(1)
	return s.Files.SyncDir(dir)
}

func (s *syncs) Overwrite(path string, data []byte) error {
	s.count.Add(1)
	return s.Files.Overwrite(path, data)
}

// costs are counts since the start.
type costs struct {
	// Syncs are waits for stable storage, Requests requests to the API server, Calls calls of NVML besides the wait for the next event.
	Syncs, Requests, Calls int64
}

func (c costs) minus(before costs) costs {
	return costs{c.Syncs - before.Syncs, c.Requests - before.Requests, c.Calls - before.Calls}
}

// pricedSlices records the costs at each publication.
type pricedSlices struct {
	now       func() costs
	costs     []costs
	resources resourceslice.DriverResources
}

func (s *pricedSlices) Publish(resources resourceslice.DriverResources) {
	s.costs, s.resources = append(s.costs, s.now()), resources
}

// Run waits for the context to end.
func (*pricedSlices) Run(ctx context.Context, _ func(kube.DroppedFields)) error {
	<-ctx.Done()
	return nil
}

// Stats are zero.
func (*pricedSlices) Stats() kube.SlicesStats { return kube.SlicesStats{} }

// tainted counts the published devices that have a taint.
func (s *pricedSlices) tainted() (count int) {
	for _, pool := range s.resources.Pools {
		for _, part := range pool.Slices {
			for i := range part.Devices {
				if len(part.Devices[i].Taints) > 0 {
					count++
				}
			}
		}
	}
	return count
}

// TestHealth_EventToPublication_Costs: between the event of the driver and the publication of the taint, the file with the findings is made
// durable, and the GPU is polled. No request to the API server delays the update of the ResourceSlice, and no device is described again.
func TestHealth_EventToPublication_Costs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		durable := &syncs{Files: n.adapters.Disk}
		n.adapters.Disk = durable
		published := &pricedSlices{now: func() costs {
			all := costs{Syncs: durable.count.Load(), Requests: int64(len(n.client.Actions()))}
			for _, process := range n.model.Calls.List() {
				all.Calls += int64(process.Total - process.Counts["nvmlEventSetWait_v2"])
			}
			return all
		}}
		api := n.adapters.API
		n.adapters.API = func(ctx context.Context) (API, error) {
			a, err := api(ctx)
			a.Slices = published
			return a, err
		}
		p := n.build(t)
		p.Machine.Health.Lead(t.Context())
		defer fakes.Run(t, p.Machine.Health.Run)()
		defer fakes.Run(t, p.layout.Publisher.Run)()
		synctest.Wait()
		before, last := len(published.costs), published.now()
		attributes := attributesOf(published.resources)

		require.NoError(t, n.model.ChangeHealth(0, func(h *model.Health) { h.Action = 1 }))
		synctest.Wait()
		require.Len(t, published.costs, before+1, "one publication")
		assert.Equal(t, 2, published.tainted(), "both devices of the GPU")
		assert.Equal(t, costs{
			Syncs: 2, // content and name of the file
			Calls: 3, // whether the GPU answers, its fields, and its fabric
		}, published.costs[before].minus(last))
		for device, was := range attributes {
			assert.Same(t, was, attributesOf(published.resources)[device], "%s was described again", device)
		}
	})
}

// attributesOf returns the type attribute of each published device, which is the same object as long as the description is.
func attributesOf(resources resourceslice.DriverResources) map[string]*string {
	found := map[string]*string{}
	for _, pool := range resources.Pools {
		for _, part := range pool.Slices {
			for i := range part.Devices {
				found[part.Devices[i].Name] = part.Devices[i].Attributes[resourceapi.QualifiedName(gpu.AttributeType)].StringValue
			}
		}
	}
	return found
}
