package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const cgroupEnv = "SIMGPU_TEST_CGROUP"

// newCgroup creates a cgroup (v2) that the end of the test removes.
func newCgroup(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		dir := filepath.Join(strings.Fields(before)[4], "simgpu-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("no cgroup can be created: %v", err)
		}
		t.Cleanup(func() { assert.NoError(t, os.Remove(dir)) })
		return dir
	}
	t.Skip("no cgroup2 is mounted")
	return ""
}

// limitMemory sets a limit of 4 GiB, reads it, and removes it when the test resumes.
func limitMemory(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, ret := c.lib.DeviceGetHandleByIndex(0)
	if err := must("first GPU", ret); err != nil {
		return err
	}
	cgroup := os.Getenv(cgroupEnv)
	err := errors.Join(
		must("set", device.SetMemoryLimits_v1(cgroup, 0, 4<<30)),
		c.send(device.SetMemoryLimits_v1("/proc/self", 0, 4<<30)),
	)
	if err != nil {
		return err
	}
	c.proceed()
	limits, ret := device.GetMemoryLimits_v1(cgroup)
	if err := errors.Join(must("get", ret), c.send([]uint64{limits.SoftLimit, limits.HardLimit, limits.CurrentUsed >> 20})); err != nil {
		return err
	}
	return must("remove", device.SetMemoryLimits_v1(cgroup, 0, model.NoMemoryLimit))
}

// protectMemory sets a soft limit, which the driver must report, and sets it to 0 only when the cgroup is gone.
func protectMemory(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, ret := c.lib.DeviceGetHandleByIndex(0)
	if err := must("first GPU", ret); err != nil {
		return err
	}
	cgroup := os.Getenv(cgroupEnv)
	err := errors.Join(
		c.send(device.SetMemoryLimits_v1(cgroup, 4<<30, 1<<30)),
		must("set", device.SetMemoryLimits_v1(cgroup, 1<<30, 4<<30)),
	)
	if err != nil {
		return err
	}
	limits, ret := device.GetMemoryLimits_v1(cgroup)
	if err := errors.Join(must("get", ret), c.send([]uint64{limits.SoftLimit, limits.HardLimit})); err != nil {
		return err
	}
	c.proceed()
	return c.send(device.SetMemoryLimits_v1(cgroup, 0, model.NoMemoryLimit))
}

// NVML cannot name a cgroup that was removed: its soft limit stays accounted.
func TestMemoryLimits_CgroupRemovedBeforeZeroed_SoftLimitStays(t *testing.T) {
	cgroup := filepath.Join(newCgroup(t), "protected")
	require.NoError(t, os.Mkdir(cgroup, 0o755))
	t.Setenv(cgroupEnv, cgroup)
	node := sandbox.Start(t, model.Spec{Name: "node-a", Driver: "615.71.09", Boards: []string{"h100-80"}})
	admin := start(t, node, "protectMemory")
	var ret nvml.Return
	admin.receive(&ret)
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, "soft above hard")
	var limits []uint64
	admin.receive(&limits)
	assert.Equal(t, []uint64{1 << 30, 4 << 30}, limits)
	require.NoError(t, os.Remove(cgroup))
	admin.resume()
	admin.receive(&ret)
	admin.end()
	assert.Equal(t, nvml.ERROR_OPERATING_SYSTEM, ret)
	assert.Equal(t, uint64(1<<30), node.Model.GPUs()[0].ProtectedMemory)
}

func TestMemoryLimits_Cgroup_HoldsProcess(t *testing.T) {
	cgroup := newCgroup(t)
	t.Setenv(cgroupEnv, cgroup)
	node := sandbox.Start(t, model.Spec{Name: "node-a", Driver: "615.71.09", Boards: []string{"h100-80"}})
	m := newMPS(t, node)
	admin := start(t, node, "memoryLimits")
	var outside nvml.Return
	admin.receive(&outside)
	assert.Equal(t, nvml.ERROR_OPERATING_SYSTEM, outside, "a directory that is not a cgroup")

	dir, err := os.Open(cgroup)
	require.NoError(t, err)
	defer dir.Close()
	held := m.startClient(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}, 3584)
	assert.Equal(t, "multiprocessors 132, free 3584 MiB, total 4096 MiB", held.holds())
	assert.Equal(t, "cuMemAlloc_v2: 2", held.more())
	assert.Contains(t, m.client(0, 10000).holds(), "total 81008 MiB", "in no cgroup with a limit")

	admin.resume()
	var limits []uint64
	admin.receive(&limits)
	admin.end()
	assert.Equal(t, []uint64{0, 4 << 30, 4096}, limits)
	assert.Equal(t, "allocated", held.more())
	held.kill()
}
