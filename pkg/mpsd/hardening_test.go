package mpsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/hostfs"
)

// listIn lists a directory as a process sees it.
func listIn(t *testing.T, pid int, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root%s", pid, directory))
	require.NoError(t, err)
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// status returns a field of /proc/<pid>/status.
func status(t *testing.T, pid int, field string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestHardening_DaemonAndServer_SeeWhatTheyMay: and the server and a client work.
func TestHardening_DaemonAndServer_SeeWhatTheyMay(t *testing.T) {
	t.Parallel()
	for _, hardening := range Hardenings {
		t.Run(string(hardening), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, newDriver)
			m.options.Hardening = hardening
			s := m.service()
			daemon := m.ensure(s)
			client := m.tenant(1000)
			client.connected()
			require.NotEmpty(t, daemon.Servers)
			for _, pid := range append([]int{daemon.PID}, daemon.Servers...) {
				if hardening == HardeningNone {
					assert.Contains(t, listIn(t, pid, m.node.Root()), "etc")
					continue
				}
				assert.ElementsMatch(t, []string{"usr", "run"}, listIn(t, pid, m.node.Root()))
				assert.Equal(t, []string{"nvidia-persistenced"}, listIn(t, pid, m.node.Root()+"/run"))
				assert.ElementsMatch(t, []string{controlProgram, serverProgram}, listIn(t, pid, filepath.Dir(m.node.SMI())))
				assert.Equal(t, []string{string(daemonID)}, listIn(t, pid, m.options.Dir))
				assert.Subset(t, []string{
					"fd", "full", "null", "nvidia-caps", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidiactl", "random", "shm",
					"stderr", "stdin", "stdout", "urandom", "zero",
				}, listIn(t, pid, "/dev"))
				for _, directory := range []string{m.node.Root(), filepath.Dir(m.options.Dir)} {
					assert.Contains(t, mountOptions(t, pid, directory), "tmpfs ro,")
				}
				full := hardening == HardeningFull
				assert.Equal(t, map[bool]string{true: "1", false: "0"}[full], status(t, pid, "NoNewPrivs"))
				assert.Equal(t, "2", status(t, pid, "Seccomp"))
				if full {
					held, err := strconv.ParseUint(status(t, os.Getpid(), "CapBnd"), 16, 64)
					require.NoError(t, err)
					assert.Equal(t, fmt.Sprintf("%016x", held&0x180c0ff), status(t, pid, "CapBnd"))
				}
			}
			client.kill()
			m.eventually(func() bool { return s.Stop(t.Context(), daemonID) == nil })
			m.gone()
		})
	}
}

// TestLaunch_Full_CallsForbidden: the calls fail although none of them needs a dropped capability.
func TestLaunch_Full_CallsForbidden(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	shm := filepath.Join(filepath.Dir(m.options.Dir), "shm")
	require.NoError(t, os.Mkdir(shm, 0o755))
	const refused = "unshare failed: Operation not permitted"
	for hardening, want := range map[Hardening]string{HardeningNone: "0 0 0 ", HardeningMounts: "1 0 0 " + refused, HardeningFull: "1 1 1 " + refused} {
		l := launch{Shm: shm, Hardening: hardening, Tree: mountTree{Dev: "/dev"}}
		script := `unshare --user true 2>/dev/null; printf "$? "; python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)'; printf "$? "
test -w /sys/kernel/uevent_helper -o -w /sys/fs/cgroup; printf "$? "; unshare --user true 2>&1 | sed 's/^unshare: //' | tr -d '\n'`
		args, err := l.arguments(m.options.Program, "/bin/sh", "-c", script)
		require.NoError(t, err)
		command := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount"}, args...)...)
		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))
		assert.Equal(t, want, string(output), hardening)
	}
}

// TestLaunch_KeptFileNotHidden_Untouched: a service without a container sees the machine's own files, including the driver.
func TestLaunch_KeptFileNotHidden_Untouched(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	dir := filepath.Dir(m.options.Dir)
	shm, library, hidden := filepath.Join(dir, "shm"), filepath.Join(dir, "libcuda.so.1"), filepath.Join(dir, "hidden")
	require.NoError(t, errors.Join(os.Mkdir(shm, 0o755), os.Mkdir(hidden, 0o755)))
	kept := filepath.Join(hidden, "kept")
	for _, path := range []string{library, kept} {
		require.NoError(t, os.WriteFile(path, []byte("the driver's"), 0o600))
	}
	tree := mountTree{Hidden: []string{hidden}, Kept: []string{library, kept}, Dev: "/dev"}
	args, err := launch{Shm: shm, Hardening: HardeningMounts, Tree: tree}.arguments(m.options.Program, "/bin/cat", library, kept)
	require.NoError(t, err)
	output, err := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount"}, args...)...).CombinedOutput()
	require.NoError(t, err, string(output))
	assert.Equal(t, "the driver'sthe driver's", string(output))
	text, err := os.ReadFile(library)
	require.NoError(t, err)
	assert.Equal(t, "the driver's", string(text))
}

// TestLaunch_NoSettings_Refused: the error names the problem.
func TestLaunch_NoSettings_Refused(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Launch([]string{"{}"}), "the arguments must be settings, a program and its arguments")
	var syntax *json.SyntaxError
	require.ErrorAs(t, Launch([]string{"/dev/shm", "/bin/true"}), &syntax)
}

// TestMountTree_DriverOfAnOperator_OwnSocketsKept: services of a driver in another root listen below that root.
func TestMountTree_DriverOfAnOperator_OwnSocketsKept(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	root := filepath.Join(host, "run/nvidia/driver")
	for path, mode := range map[string]os.FileMode{
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05": 0o644, "usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05": 0o644,
		"usr/bin/" + controlProgram: 0o755, "usr/bin/" + serverProgram: 0o755,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte("x"), mode))
	}
	require.NoError(t, os.Symlink("libnvidia-ml.so.580.95.05", filepath.Join(root, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")))
	options := Options{Dir: "/run/gpu.example.com/mps", Host: hostfs.New(host), DriverRoot: "/run/nvidia/driver"}
	installed, err := options.driver()
	require.NoError(t, err)
	tree, err := (&daemon{service: &Service{Options: options}, dir: "/run/gpu.example.com/mps/a"}).mountTree(installed)
	require.NoError(t, err)
	library := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	assert.Equal(t, mountTree{
		Hidden: []string{host, "/run/gpu.example.com"},
		Kept: []string{
			filepath.Join(library, "libcuda.so.580.95.05"), filepath.Join(library, "libnvidia-ml.so.580.95.05"), "/run/gpu.example.com/mps/a",
			filepath.Join(root, "usr/bin", controlProgram), filepath.Join(root, "usr/bin", serverProgram),
			filepath.Join(root, "run/nvidia-persistenced"), filepath.Join(root, "run/nvidia-fabricmanager"),
		},
		Dev: filepath.Join(host, "dev"),
	}, tree)
}
