package inventory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// migDevice is a MIG device on the first GPU: the result of its creation, and the devices that an inspection shows afterwards.
type migDevice struct {
	Made gpu.ComputeInstance
	Seen []gpu.Instance
	Err  string
}

// partition creates a MIG device next to an existing one.
func partition(i *inventory.Inventory) (s migDevice) {
	fail := func(err error) migDevice { return migDevice{Err: err.Error()} }
	ctx := context.Background()
	driver, err := i.MIGDriver()
	if err != nil {
		return fail(err)
	}
	id := i.Current().Node.GPUs[0].UUID
	if err := driver.SetMIGMode(ctx, id, true); err != nil {
		return fail(err)
	}
	for _, start := range []int{4, 0} {
		gi, err := driver.CreateInstance(ctx, id, 9, gpu.Placement{Start: start, Size: 4})
		if err != nil {
			return fail(err)
		}
		if s.Made, err = driver.CreateComputeInstance(ctx, id, gi); err != nil {
			return fail(err)
		}
	}
	if s.Seen, err = driver.Instances(ctx, id); err != nil {
		return fail(err)
	}
	return s
}

// The creation of a MIG device returns the same identity as a later inspection.
func TestCreate_Instance_ShownAsReturned(t *testing.T) {
	t.Parallel()
	for name, make := range machines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := make(t, model.Uniform("node", "h100-80", 2))
			require.Empty(t, n.inspect(t).Err)
			s := n.partition(t)
			require.Empty(t, s.Err)
			require.Len(t, s.Seen, 2)
			uuids := map[gpu.MIGUUID]bool{}
			for _, device := range n.hardware.Snapshot().GPUs[0].MIGDevices {
				uuids[gpu.MIGUUID(device.UUID)] = true
			}
			require.Len(t, uuids, 2)
			assert.True(t, uuids[s.Made.UUID], "%s is the UUID of no MIG device: %v", s.Made.UUID, uuids)
			for _, instance := range s.Seen {
				require.Len(t, instance.Compute, 1)
				assert.True(t, uuids[instance.Compute[0].UUID])
				if instance.Placement.Start == 0 {
					assert.Equal(t, s.Made, instance.Compute[0])
				}
			}
		})
	}
}
