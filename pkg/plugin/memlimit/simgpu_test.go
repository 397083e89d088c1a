package memlimit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// cgroupOfTest creates a cgroup (v2) that is removed with the test.
func cgroupOfTest(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		dir := filepath.Join(strings.Fields(before)[4], fmt.Sprintf("memlimit-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("no cgroup can be created: %v", err)
		}
		t.Cleanup(func() { assert.NoError(t, os.Remove(dir)) })
		return dir
	}
	t.Skip("no cgroup2 is mounted")
	return ""
}

// program allocates GPU memory as a process of the cgroup, and returns the GPU memory that it sees.
func program(t *testing.T, node *sandbox.Node, cgroup string) string {
	t.Helper()
	dir, err := os.Open(cgroup)
	require.NoError(t, err)
	defer dir.Close()
	command := exec.CommandContext(t.Context(), node.GPUMem(), "1024")
	command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
	command.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	in, err := command.StdinPipe() // it holds the memory until this ends
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	seen := lines.Text()
	_ = command.Process.Kill()
	_ = in.Close()
	_ = command.Wait()
	return seen
}

// TestServer_DriverWithLimits_ProgramSeesItsMemory: from the hook of a container to the memory that its programs see, by the driver's
// library.
func TestServer_DriverWithLimits_ProgramSeesItsMemory(t *testing.T) {
	t.Parallel()
	dir := cgroupOfTest(t)
	node := sandbox.Start(t, model.Spec{Name: "node", Driver: "615.71.09", Boards: []string{"h100-80"}})
	session, err := nvml.Open(t.Context(), node.Library(), nvml.Options{Root: node.Root()})
	if errors.Is(err, gpu.ErrDriverReplaced) {
		t.Skip("this process has run the test before: it loads one driver library")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close()) })
	gpus, _, err := session.GPUs(t.Context())
	require.NoError(t, err)
	require.True(t, gpus[0].MemoryLimits)

	w := newWorld(t)
	w.record.Results[0].GPUUUID = gpus[0].UUID
	w.server.Driver = func() (gpu.MemoryLimiter, error) { return session, nil }
	w.server.Cgroup = func(path string) (string, error) { return filepath.Join(filepath.Dir(dir), path), nil }
	w.serve(t)
	assert.Contains(t, program(t, node, dir), "total 81008 MiB")
	require.NoError(t, w.container(t, "/"+filepath.Base(dir), "uid", share, retry))
	assert.Contains(t, program(t, node, dir), "free 3584 MiB, total 4096 MiB")

	w.record.Results[0].Consumed["memory"] = "1Ti"
	require.ErrorContains(t, w.container(t, "/"+filepath.Base(dir), "uid", share, retry), "NVML INVALID_ARGUMENT", "more than the GPU has")
	require.ErrorContains(t, w.container(t, "/gone", "uid", share, retry), "limiting the GPU memory of the container: ")
}
