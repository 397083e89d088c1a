package hostfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcess_Stat_PIDAndStart(t *testing.T) {
	t.Parallel()
	stat := func(name, state string) string {
		return "7 (" + name + ") " + state + " 1 7 7" + strings.Repeat(" 0", 15) + " 4711 0 0\n"
	}
	for _, c := range []struct {
		name, stat string
		running    bool
	}{
		{"running", stat("nvidia-cuda-mps", "S"), true},
		{"a name with parentheses", stat("a) Z (", "R"), true},
		{"not reaped", stat("a", "Z"), false},
		{"dead", stat("a", "X"), false},
		{"incomplete", "7 (a) S 1", false},
		{"no number", strings.Replace(stat("a", "S"), "4711", "x", 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			process, running := New(tree(t, map[string]string{"proc/7/stat": c.stat})).Process(7)
			assert.Equal(t, c.running, running)
			if running {
				assert.Equal(t, Process{PID: 7, Start: 4711}, process)
			}
		})
	}
	_, running := New(t.TempDir()).Process(7)
	assert.False(t, running)
}

func TestProcessesWith_Environment_WholeEntries(t *testing.T) {
	t.Parallel()
	value := "PRISM_TEST=" + t.TempDir()
	command := exec.CommandContext(t.Context(), "cat")
	command.Env = []string{"OTHER=1", value}
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	host := New("/")
	process, running := host.Process(command.Process.Pid)
	require.True(t, running)
	found, err := host.ProcessesWith(value)
	require.NoError(t, err)
	assert.Equal(t, []Process{process}, found)
	found, err = host.ProcessesWith(value[:len(value)-1])
	require.NoError(t, err)
	assert.Empty(t, found)
	require.NoError(t, stdin.Close())
	require.NoError(t, command.Wait())
	_, running = host.Process(process.PID)
	assert.False(t, running)
	own, running := host.Process(os.Getpid())
	assert.True(t, running)
	assert.LessOrEqual(t, own.Start, process.Start, "in the same clock tick or later")
	_, err = New(t.TempDir()).ProcessesWith(value)
	require.ErrorContains(t, err, "listing processes in /proc")
}

// Containers run in PID namespaces of their own and choose their environments.
func TestProcessesWith_OtherPIDNamespace_LeftOut(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	value := "PRISM_TEST=" + t.TempDir()
	for _, flags := range []uintptr{0, syscall.CLONE_NEWPID} {
		command := exec.CommandContext(t.Context(), "cat")
		command.Env = []string{value}
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		stdin, err := command.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		found, err := New("/").ProcessesWith(value)
		require.NoError(t, err)
		if flags == 0 {
			assert.Len(t, found, 1)
		} else {
			assert.Empty(t, found)
		}
		require.NoError(t, stdin.Close())
		require.NoError(t, command.Wait())
	}
}

// A pod without privileges can let /proc/<pid>/environ of its processes grow to gigabytes.
func TestProcessesWith_HugeEnvironment_ReadToTheLimit(t *testing.T) {
	t.Parallel()
	const entry = "PRISM_TEST=1"
	root := tree(t, map[string]string{
		"proc/7/environ": "OTHER=1\x00" + entry + "\x00",
		"proc/8/environ": strings.Repeat("\x00", environmentLimit) + entry + "\x00",
		"proc/9/environ": strings.Repeat("x", environmentLimit-len(entry)-1) + "\x00" + entry + "2\x00",
	})
	for _, pid := range []string{"7", "8", "9"} {
		dir := filepath.Join(root, "proc", pid)
		stat := pid + " (a) S 1 7 7" + strings.Repeat(" 0", 15) + " 4711 0 0\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "ns"), 0o700))
		require.NoError(t, os.Symlink("/proc/self/ns/pid", filepath.Join(dir, "ns", "pid")))
		require.NoError(t, os.Truncate(filepath.Join(dir, "environ"), 1<<42), "sparse: more than can be read into memory")
	}
	found, err := New(root).ProcessesWith(entry)
	require.NoError(t, err)
	assert.Equal(t, []Process{{PID: 7, Start: 4711}}, found)
}

// Opening a named pipe without a writer blocks.
func TestProcessesWith_OtherPIDNamespace_NotOpened(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"proc/7/ns/pid": ""})
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "proc/7/environ"), 0o600))
	listed := make(chan error, 1)
	go func() {
		_, err := New(root).ProcessesWith("PRISM_TEST=1")
		listed <- err
	}()
	select {
	case err := <-listed:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the environment of a process in another PID namespace was opened")
	}
}
