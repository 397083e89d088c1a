package gpu_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// shared is a GPU with the test's own MPS control daemon, in its own directories. The test changes no setting of the GPU: the compute mode
// stays, so only allocations of this daemon's clients are shared.
type shared struct {
	t       *testing.T
	program string // allocates memory
	control string
	env     []string
	dir     string
}

// limitMiB is the limit of a client of the daemon.
const limitMiB = 2048

// share starts the daemon. It skips the test if the GPU cannot be shared now.
func share(t *testing.T) *shared {
	t.Helper()
	s, id, _ := sharedGPU(t)
	s.serve(id)
	return s
}

// sharedGPU is share without a daemon.
func sharedGPU(t *testing.T) (*shared, gpu.UUID, hostfs.DriverRoot) {
	t.Helper()
	session, root, _ := open(t)
	gpus, _, err := session.GPUs(t.Context())
	require.NoError(t, err)
	i := 0
	for i < len(gpus) && (gpus[i].MIG != nil && gpus[i].MIG.Mode.Enabled || gpus[i].Capacity.MemoryBytes < 4*limitMiB<<20) {
		i++
	}
	if i == len(gpus) {
		t.Skip("no GPU outside MIG mode with enough memory")
	}
	control, found := root.Tool("nvidia-cuda-mps-control")
	if !found {
		t.Skip("the driver was installed without nvidia-cuda-mps-control")
	}
	s := &shared{t: t, control: control, dir: t.TempDir()}
	s.program = filepath.Join(s.dir, "gpu-mem")
	out, err := exec.CommandContext(t.Context(), "cc", "-O2", "-o", s.program, "../simgpu/bundle/csrc/gpu_mem.c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.env = []string{
		"PATH=" + filepath.Dir(control) + ":" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + filepath.Dir(root.Library),
		"CUDA_VISIBLE_DEVICES=" + string(gpus[i].UUID), "CUDA_MPS_PIPE_DIRECTORY=" + s.dir, "CUDA_MPS_LOG_DIRECTORY=" + s.dir,
	}
	return s, gpus[i].UUID, root
}

// serve starts the control daemon, and stops it after the test.
func (s *shared) serve(id gpu.UUID) {
	s.t.Helper()
	daemon := exec.CommandContext(context.WithoutCancel(s.t.Context()), s.control, "-f")
	daemon.Env, daemon.SysProcAttr = s.env, &syscall.SysProcAttr{Setpgid: true}
	input, err := daemon.StdinPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, daemon.Start())
	s.t.Cleanup(func() {
		_, _ = s.ask("quit")
		_ = input.Close()
		stopped := make(chan error, 1)
		go func() { stopped <- daemon.Wait() }()
		select {
		case err := <-stopped:
			s.t.Logf("the control daemon exited: %v", err)
		case <-time.After(time.Minute):
			assert.NoError(s.t, syscall.Kill(-daemon.Process.Pid, syscall.SIGKILL))
			s.t.Errorf("the control daemon of GPU %s did not quit", id)
		}
	})
	require.Eventually(s.t, func() bool {
		answer, err := s.ask("get_default_active_thread_percentage")
		return err == nil && answer != ""
	}, time.Minute, 100*time.Millisecond)
	_, err = s.ask(fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", limitMiB))
	require.NoError(s.t, err)
	answer, err := s.ask("get_default_device_pinned_mem_limit 0")
	require.NoError(s.t, err)
	s.t.Logf("GPU %s: default limit %dM is read as %q", id, limitMiB, answer)
	assert.Equal(s.t, "2G", answer)
}

// ask sends one command to the daemon.
func (s *shared) ask(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Minute)
	defer cancel()
	ui := exec.CommandContext(ctx, s.control)
	ui.Env, ui.Stdin = s.env, strings.NewReader(command+"\n")
	out, err := ui.Output()
	return strings.TrimSpace(string(out)), err
}

// client allocates this amount of memory with additional variables, and holds it until the test ends. It returns the output of the program.
func (s *shared) client(mebibytes int, env ...string) (lines []string, holds bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	program := exec.CommandContext(ctx, s.program, fmt.Sprint(mebibytes))
	program.Env = append(append([]string{}, s.env...), env...)
	input, err := program.StdinPipe()
	require.NoError(s.t, err)
	output, err := program.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, program.Start())
	s.t.Cleanup(func() {
		_ = input.Close()
		_ = program.Wait()
		cancel()
	})
	stop := time.AfterFunc(time.Minute, cancel)
	defer stop.Stop()
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if strings.HasPrefix(scanner.Text(), "holding ") {
			go func() { _, _ = io.Copy(io.Discard, output) }()
			return lines, true
		}
	}
	return lines, false
}

// A client of the MPS control daemon can allocate its limit beside another client, and not more. With some drivers, a client removes the
// limit if it names a device that it does not see: the test reports that, and does not fail.
func TestMPS_TwoClients_LimitHoldsOrEscapeIsReported(t *testing.T) {
	s := share(t)
	for range 2 {
		lines, holds := s.client(limitMiB / 2)
		t.Logf("half of the limit: %q", lines)
		assert.True(t, holds, "half of the limit")
	}
	lines, holds := s.client(2 * limitMiB)
	t.Logf("twice the limit: %q", lines)
	assert.False(t, holds, "twice the limit")
	assert.Contains(t, lines, "cuMemAlloc_v2: 2")
	lines, holds = s.client(limitMiB/2, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", limitMiB/4))
	t.Logf("more than the client's own limit: %q", lines)
	assert.False(t, holds, "a client lowers its limit")
	lines, holds = s.client(2*limitMiB, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%[1]dM,1=%[1]dM", limitMiB))
	t.Logf("twice the limit, with a device that is not there: held %t: %q", holds, lines)
	servers, err := s.ask("get_server_list")
	require.NoError(t, err)
	for server := range strings.FieldsSeq(servers) {
		clients, err := s.ask("get_client_list " + server)
		if _, exited := errors.AsType[*exec.ExitError](err); !exited {
			require.NoError(t, err)
		}
		t.Logf("clients of server %s: %q", server, clients)
	}
}
