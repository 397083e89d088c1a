package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMIGConfigInvalid_GPUKeepsItsLayout: a configuration that a GPU does not support is reported with what it
// supports: the GPU is advertised as before, also after a restart, and the others as it says. A good one is in force when the GPU is free.
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
	ns.advertises(t, ns.gpus.size, startLimit)
	require.NoError(t, ns.migDevicesOf(7, placements))
	ns.do("delete", "pod", "--namespace", system, "--selector", pluginSelector)
	ns.plugin(t)
	always(t, 3*time.Second, func() error { return errors.Join(ns.migDevicesOf(6, 0), ns.migDevicesOf(7, placements)) })
	ns.createMIG("mig", "1g.10gb", 7)
	held := ns.migDevice("mig")

	back()
	ns.advertisesMIG(t, startLimit)
	ns.sees("mig", "main", held)
	require.NoError(t, ns.silence())
}

// configure gives the node's configuration one entry with these settings, and these flags, until the test has ended or the answer is
// called.
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

// advertisesNo complains when a device of the type is published.
func (c *cluster) advertisesNo(deviceType string) error {
	n, err := c.advertised(deviceType)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d devices of type %s are published", n, deviceType)
	}
	return err
}
