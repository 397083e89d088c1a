package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// TestMIGConfigInvalid_GPUKeepsItsLayout: if a GPU does not support a configuration, the plugin reports the supported profiles and
// advertises the GPU as before, also after a restart, and the other GPUs according to the configuration. A valid configuration takes effect
// when the GPU is free.
func TestMIGConfigInvalid_GPUKeepsItsLayout(t *testing.T) {
	ns := migExclusive(t)
	back := ns.configure(t, "select.indices={7}", "modes={whole,mig}", "mig.profiles={1g.10gb,9g.90gb}")
	message := ns.warned("NodeConfigInvalid", "9g.90gb")
	t.Log(message)
	for _, part := range []string{"gpus[0].mig.profiles[1]", "NVIDIA H100 80GB HBM3 has no profile 9g.90gb; it has: 1g.10gb, 2g.20gb,",
		"GPU 7 stays as it was advertised", "all else is applied"} {
		assert.Contains(t, message, part)
	}
	eventually(t, startLimit, func() error { return ns.migDevicesOf(6, 0) })
	ns.untainted(t) // the former devices of other GPUs are gone, too
	ns.advertises(t, ns.gpus.size, startLimit)
	require.NoError(t, ns.migDevicesOf(7, placements))
	before, err := ns.resourceSlices()
	require.NoError(t, err)
	ns.do("delete", "pod", "--namespace", system, "--selector", pluginSelector, "--timeout="+startLimit.String())
	ns.plugin(t)
	ns.publishesOnly(t, before, nodeName)
	require.NoError(t, errors.Join(ns.migDevicesOf(6, 0), ns.migDevicesOf(7, placements)))
	ns.createMIG("mig", "1g.10gb", 7)
	held := ns.migDevice("mig")

	back()
	ns.advertisesMIG(t, startLimit)
	ns.sees("mig", "main", held)
	require.NoError(t, ns.silence())
}

// configure gives the node's configuration one entry with these settings, and these flags, until the end of the test or a call of back.
func (c *cluster) configure(t *testing.T, settings ...string) (back func()) {
	t.Helper()
	for i, setting := range settings {
		if !strings.HasPrefix(setting, "flags.") {
			setting = "gpus[0]." + setting
		}
		settings[i] = "config.map.e2e." + setting
	}
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values", "--set", strings.Join(settings, ","))
	back = sync.OnceFunc(func() {
		c.helm(t, "rollback", "prism")
		c.plugin(t)
	})
	t.Cleanup(back)
	c.plugin(t)
	return back
}

// publishesOnly deletes the ResourceSlices of a pool, and waits until the plugin, which has started since, has published them again, twice:
// after its start the plugin checks all pools, and then only pools that others have changed. No other pool may have changed.
func (c *cluster) publishesOnly(t *testing.T, before []resourceapi.ResourceSlice, pool string) {
	t.Helper()
	of := func(list []resourceapi.ResourceSlice) (its, others map[string]int64) {
		its, others = map[string]int64{}, map[string]int64{}
		for i := range list {
			if s := &list[i]; s.Spec.Pool.Name == pool {
				its[s.Name] = s.Generation
			} else {
				others[s.Name] = s.Generation
			}
		}
		return its, others
	}
	its, others := of(before)
	require.NotEmpty(t, its, "no ResourceSlice of pool %s", pool)
	for range 2 {
		for name := range its {
			c.must(t, c.kubectl("delete", "resourceslice", name)...)
		}
		count := len(its)
		eventually(t, startLimit, func() error {
			after, err := c.resourceSlices()
			var now map[string]int64
			if its, now = of(after); err == nil && len(its) != count {
				err = fmt.Errorf("pool %s has %d ResourceSlices, not %d", pool, len(its), count)
			}
			if err == nil {
				require.Equal(t, others, now, "generations of other ResourceSlices: nothing changed, so nothing is published")
			}
			return err
		})
	}
}

// advertisesNo returns an error if a device of the type is published.
func (c *cluster) advertisesNo(deviceType string) error {
	n, err := c.advertised(deviceType)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d devices of type %s are published", n, deviceType)
	}
	return err
}
