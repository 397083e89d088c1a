package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHealth_XIDWithoutRecoveryAction_StaysUntilHealed: if the driver reports no recovery action, a hardware error taints the GPU, also after
// the plugin was restarted, until an administrator heals the GPU. An error of an application changes nothing.
func TestHealth_XIDWithoutRecoveryAction_StaysUntilHealed(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	plugin, device, uuid := ns.freshPlugin(t), ns.deviceAt(sickGPU), ns.uuidAt(sickGPU)
	ns.must(t, ns.simgpu("inject", "error", "--call", "nvmlDeviceGetFieldValues", "--code", notSupported)...)
	t.Cleanup(func() { _, _ = ns.run("", ns.simgpu("inject", "clear")...) }) // the test may have ended it
	before := ns.callsOfPlugin(t)
	pid := ns.pid(t, plugin)
	ns.must(t, ns.onNode("kill", "-STOP", pid)...) // it may write the file at any time
	require.NoError(t, os.Remove(filepath.Join(ns.pluginsOf(driverName), "health.json")), "it says that the driver has reported actions")
	ns.must(t, ns.onNode("kill", "-KILL", pid)...)
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	eventually(t, startLimit, func() error {
		if n := ns.callsOfPlugin(t)[registerEvents] - before[registerEvents]; n < nodeGPUs {
			return fmt.Errorf("the new process receives events of %d GPUs", n)
		}
		return nil
	})

	ns.breaks("xid", "13")
	ns.breaks("xid", "79")
	began := ns.isTainted(uuid, "xid", "79").TimeAdded
	require.NoError(t, ns.hasOnly(uuid, "xid"))
	require.NoError(t, ns.onlyTainted(uuid))
	ns.create(ns.onSickGPU("waits"), workload{name: "elsewhere", ref: "gpu", request: request{class: gpuClass}})
	assert.NotEqual(t, uuid, ns.grantedTo(ns.ready("elsewhere"), "gpu")[0].UUID)
	ns.waits("waits")

	key := "heal." + driverName + "/" + device
	ns.must(t, ns.kubectl("annotate", "--overwrite", "node", nodeName, key+"="+began.Add(-time.Hour).UTC().Format(time.RFC3339))...)
	t.Log(ns.warned("GPUHealRefused", uuid))
	assert.True(t, began.Equal(ns.isTainted(uuid, "xid", "79").TimeAdded))
	ns.must(t, ns.prism("gpu", "heal", nodeName, device)...)
	ns.isHealthy(uuid)
	ns.sees("waits", "main", ns.grantedTo(ns.ready("waits"), "gpu")...)
}

// The calls for events.
const (
	createEvents   = "nvmlEventSetCreate"
	registerEvents = "nvmlDeviceRegisterEvents"
	waitEvents     = "nvmlEventSetWait_v2"
)

// notSupported is the return code of NVML for a function that the board or the driver does not support.
const notSupported = "3"

// TestHealth_FindingsDamaged_PollsDecide: findings that cannot be read are set aside and reported. Polls find the problem again, so the GPU is
// never published without its taint.
func TestHealth_FindingsDamaged_PollsDecide(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	plugin, uuid := ns.freshPlugin(t), ns.uuidAt(sickGPU)
	ns.breaks("row-remap", "failure")
	ns.isTainted(uuid, "memory", "row-remap-failure")
	stored := filepath.Join(ns.pluginsOf(driverName), "health.json")
	pid := ns.pid(t, plugin)
	ns.must(t, ns.onNode("kill", "-STOP", pid)...) // it may write the file at any time
	garbled, aside := ns.garble(stored), stored+".damaged"
	t.Cleanup(func() { _ = os.Remove(aside) }) // an administrator removes it after reading it
	ns.must(t, ns.onNode("kill", "-KILL", pid)...)
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	ns.advertises(t, ns.gpus.size, startLimit)

	message := ns.warned("HealthStateUnreadable", "health.json")
	t.Log(message)
	kept, err := os.ReadFile(aside)
	require.NoError(t, err)
	assert.Equal(t, string(garbled), string(kept))
	ns.isTainted(uuid, "memory", "row-remap-failure")
	require.NoError(t, ns.onlyTainted(uuid))
	eventually(t, startLimit, func() error {
		text, err := os.ReadFile(stored)
		if err == nil && (!json.Valid(text) || !strings.Contains(string(text), "row-remap-failure")) {
			err = fmt.Errorf("the findings are not stored again: %s", text)
		}
		return err
	})
	ns.recovers(uuid)
}

// TestHealth_WaitForEventsFails_PollsFindProblems: while no events can be received, the plugin tries again ever more rarely, and polls find
// problems. Afterwards events are received again.
func TestHealth_WaitForEventsFails_PollsFindProblems(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	uuid := ns.uuidAt(sickGPU)
	ns.must(t, ns.simgpu("inject", "error", "--call", waitEvents)...)
	t.Cleanup(func() { _, _ = ns.run("", ns.simgpu("inject", "clear")...) }) // the test may have ended it
	before := ns.callsOfPlugin(t)
	ns.breaks("recovery-action", "1")
	ns.isTainted(uuid, "recovery-action", "gpu-reset")
	ns.must(t, ns.simgpu("inject", "recovery-action", "0", "--gpu", strconv.Itoa(sickGPU))...)
	ns.isHealthy(uuid)
	after := ns.callsOfPlugin(t)
	// The pauses are doubled up to 30 s. A wait that works is repeated every 500 ms, so that there are at least 80 of them until polls have found
	// that the GPU is healthy, and one that fails without a pause any number of times.
	const most = 20
	t.Logf("%d waits, %d sets while waits failed", after[waitEvents]-before[waitEvents], after[createEvents]-before[createEvents])
	assert.LessOrEqual(t, after[waitEvents]-before[waitEvents], most)
	assert.LessOrEqual(t, after[createEvents]-before[createEvents], most)

	ns.must(t, ns.simgpu("inject", "clear")...)
	eventually(t, startLimit, func() error {
		if now := ns.callsOfPlugin(t); now[waitEvents] <= after[waitEvents]+most {
			return fmt.Errorf("%d waits for events since the fault ended", now[waitEvents]-after[waitEvents])
		}
		return nil
	})
	ns.recovers(uuid)
}

// callsOfPlugin counts the calls of NVML by the plugin's processes.
func (c *cluster) callsOfPlugin(t *testing.T) map[string]int {
	t.Helper()
	var state struct {
		Calls []struct {
			Process string         `json:"process"`
			Counts  map[string]int `json:"counts"`
		} `json:"calls"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.must(t, c.simgpu("state")...)), &state))
	counts := map[string]int{}
	for _, p := range state.Calls {
		if strings.HasPrefix(p.Process, "prism-kubelet") {
			for call, count := range p.Counts {
				counts[call] += count
			}
		}
	}
	require.NotEmpty(t, counts, "%+v", state.Calls)
	return counts
}

// TestHealth_GPUReplaced_OldOneGoesAtBoot: a lost GPU stays published until the node boots with another GPU in its place, which has no
// findings.
func TestHealth_GPUReplaced_OldOneGoesAtBoot(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	plugin, lost := ns.plugin(t), ns.uuidAt(sickGPU)
	ns.breaks("gpu-gone")
	ns.isTainted(lost, "gpu-lost", "lost")
	ns.must(t, ns.simgpu("inject", "gpu-replaced", "--gpu", strconv.Itoa(sickGPU))...)
	ns.must(t, ns.localcluster("reboot", nodeName)...)
	require.NoError(t, ns.learn())
	ns.startedSince(t, plugin)
	ns.advertises(t, ns.gpus.size, startLimit)

	uuid := ns.uuidAt(sickGPU)
	require.NotEqual(t, lost, uuid)
	devices, err := ns.taintsOf(lost)
	require.NoError(t, err)
	assert.Empty(t, devices, "the lost GPU is not published")
	require.NoError(t, ns.onlyTainted(""))
	ns.create(ns.onSickGPU("runs"))
	ns.do("wait", "--for=condition=Ready", "--timeout="+startLimit.String(), "pod/runs")
	assert.Equal(t, uuid, ns.grantedTo(ns.ready("runs"), "gpu")[0].UUID)
	stored, err := os.ReadFile(filepath.Join(ns.pluginsOf(driverName), "health.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(stored), lost)
}
