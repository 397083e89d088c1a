package gpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd"
)

// TestMain makes this program start control daemons, like prism-mpsd.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mpsd.LaunchCommand {
		fmt.Fprintln(os.Stderr, mpsd.Launch(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// ownMounts is set in a process whose mounts no other process has.
const ownMounts = "TEST_GPU_OWN_MOUNTS"

// TestMPS_Hardening_ClientsServed reports for each value of mps.hardening whether NVIDIA's server runs with it and serves a client. It
// changes no setting of the GPU. It does not hide the root of the host, which the process itself uses.
func TestMPS_Hardening_ClientsServed(t *testing.T) {
	s, id, root := sharedGPU(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, for its own mount namespace")
	}
	if os.Getenv(ownMounts) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run", "^"+t.Name()+"$")
		again.Env = append(os.Environ(), ownMounts+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := again.CombinedOutput()
		t.Log(string(out))
		require.NoError(t, err)
		return
	}
	require.NoError(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	for _, hardening := range mpsd.Hardenings {
		t.Run(string(hardening), func(t *testing.T) {
			options := mpsd.Options{
				Dir: filepath.Join(s.dir, string(hardening), "mps"), Host: hostfs.New("/"), DriverRoot: root.HostPath, System: mpsd.Linux{},
				Program: "/proc/self/exe", Version: "test", Hardening: hardening,
			}
			require.NoError(t, os.Mkdir(filepath.Dir(options.Dir), 0o755))
			service, err := mpsd.New(t.Context(), options)
			require.NoError(t, err)
			daemonID := gpu.MPSDaemonID("hardened")
			spec := gpu.MPSDaemonSpec{GPU: id, Device: string(id), MemoryMiB: limitMiB, ActiveThreadPercentage: 50, ShmBytes: 64 << 20}
			daemon, err := service.Ensure(t.Context(), daemonID, spec, true)
			require.NoError(t, err)
			t.Logf("control daemon %d, servers %v, one server for all users: %t", daemon.PID, daemon.Servers, daemon.MultiUser)
			dir := filepath.Join(options.Dir, string(daemonID))
			client := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount --bind "$0" /dev/shm && exec "$1" 100 </dev/null`,
				filepath.Join(dir, "shm"), s.program)
			client.Env = append(slices.Clone(s.env), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(dir, "client"))
			out, err := client.CombinedOutput()
			t.Logf("client: %s", out)
			require.NoError(t, err)
			assert.Contains(t, string(out), "holding 100 MiB")
			require.Eventually(t, func() bool { return service.Stop(t.Context(), daemonID) == nil }, time.Minute, 100*time.Millisecond)
		})
	}
}
