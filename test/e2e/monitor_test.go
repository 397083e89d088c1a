package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const adminLabel = "resource.kubernetes.io/admin-access=true"

func TestWholeAdminNeedsLabel(t *testing.T) {
	ns := inParallel(t, 0)
	_, err := ns.try("apply", "--filename", ns.spec("admin-access/pod.yaml"))
	require.ErrorContains(t, err, "admin access to devices requires")
}

// TestWholeAdminSeesGPUsInUse: if all GPUs are advertised whole, their class allocates them with admin access while all are in use.
func TestWholeAdminSeesGPUsInUse(t *testing.T) {
	ns := exclusive(t)
	before, err := ns.pools()
	require.NoError(t, err)
	t.Cleanup(func() {
		eventually(t, startLimit, func() error {
			now, err := ns.pools()
			if err == nil && !maps.Equal(before, now) {
				err = fmt.Errorf("devices by pool are %v, and were %v", now, before)
			}
			return err
		})
	})
	ns.configured(t, "whole")
	eventually(t, startLimit, ns.advertisesWholeOnly)
	ns.apply("nine-pods/job.yaml")
	ns.do("wait", "--for=jsonpath={.status.ready}=8", "--timeout="+startLimit.String(), "job/nine-pods")

	ns.do("label", "namespace", ns.name, adminLabel)
	ns.apply("admin-access/pod.yaml")
	grants := ns.grantedTo(ns.ready("admin-access"), "gpus")
	require.Len(t, grants, ns.gpus.size)
	for _, g := range grants {
		assert.Equal(t, "gpu", g.Type)
	}
	ns.sees("admin-access", "main", grants...)
	ns.delete("job", "nine-pods") // a GPU may change its layout despite admin access
}

// pools counts the published devices by pool.
func (c *cluster) pools() (map[string]int, error) {
	list, err := c.resourceSlices()
	devices := map[string]int{}
	for i := range list {
		devices[list[i].Spec.Pool.Name] += len(list[i].Spec.Devices)
	}
	return devices, err
}

// advertisesWholeOnly returns an error unless all GPUs are in the node's own pool.
func (c *cluster) advertisesWholeOnly() error {
	list, err := c.resourceSlices()
	for i := range list {
		if pool := list[i].Spec.Pool.Name; pool != nodeName {
			return fmt.Errorf("there is a pool %s", pool)
		}
	}
	if n, err2 := c.advertised("gpu"); err2 != nil || n != c.gpus.size {
		return fmt.Errorf("%d GPUs are published: %w", n, err2)
	}
	return err
}

// TestMonitorSeesPartitionedGPUsInUse: the monitor device of a node shows its GPUs and MIG devices, whichever are allocated, and only to
// claims with admin access.
func TestMonitorSeesPartitionedGPUsInUse(t *testing.T) {
	ns := migExclusive(t)
	n, err := ns.advertised("monitor")
	require.NoError(t, err)
	require.Zero(t, n, "none is configured yet")
	ns.withValue(t, "monitorDevices=PerNode")
	ns.createMIG("first", "1g.10gb", 6)
	ns.createMIG("second", "3g.40gb", 7)
	_, migs := hardwareOf([]grant{ns.migDevice("first"), ns.migDevice("second")})

	ns.do("label", "namespace", ns.name, adminLabel)
	ns.apply("monitor/pod.yaml")
	pod := ns.ready("monitor")
	boards, err := ns.boards()
	require.NoError(t, err)
	want := slices.Collect(maps.Keys(boards))
	var said struct {
		Type string   `json:"type"`
		GPUs []string `json:"gpus"`
	}
	eventually(t, startLimit, func() error {
		claim := ns.claimOf(pod, "gpus")
		if n := len(claim.Status.Devices); n != 1 {
			return fmt.Errorf("the claim's status has %d devices", n)
		}
		assert.Equal(t, nodeName+"/monitor", claim.Status.Devices[0].Pool)
		return json.Unmarshal(claim.Status.Devices[0].Data.Raw, &said)
	})
	assert.Equal(t, "monitor", said.Type)
	assert.ElementsMatch(t, want, said.GPUs)
	seen := ns.inspect("monitor", "main")
	assert.ElementsMatch(t, want, seen.uuids)
	assert.ElementsMatch(t, migs, seen.migs)

	ns.apply("monitor/without-admin-access.yaml")
	ns.isRefused("curious", "gpu", "it can be requested with adminAccess only", "adminAccess: true", adminLabel)
}
