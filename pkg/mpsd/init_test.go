package mpsd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// initEnv names the variable with the directory of a test of Init.
const initEnv = "MPSD_TEST_INIT"

// serviceCommand is the argument of the process that Init starts in tests.
const serviceCommand = "service"

// runInit is the init process or, with an argument, its service, which leaves a child behind, writes its PID, and waits.
func runInit(dir string) int {
	if len(os.Args) < 2 {
		if err := Init("/proc/self/exe", []string{serviceCommand}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	left := exec.Command("sleep", "1000")
	err := left.Start()
	if err == nil {
		name := filepath.Join(dir, strconv.Itoa(os.Getpid()))
		err = os.WriteFile(name+".tmp", []byte(strconv.Itoa(left.Process.Pid)), 0o600)
		if err == nil {
			err = os.Rename(name+".tmp", name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {} // until SIGTERM
}

func TestInit_ServiceExits_StartedAgainAndItsChildrenReaped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), initEnv+"="+dir)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	m := &machine{t: t}
	services := func() []os.DirEntry {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var complete []os.DirEntry
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), ".tmp") {
				complete = append(complete, entry)
			}
		}
		return complete
	}
	known := map[string]bool{}
	for range 3 {
		m.eventually(func() bool { return len(services()) == len(known)+1 })
		for _, entry := range services() {
			if known[entry.Name()] {
				continue
			}
			known[entry.Name()] = true
			service, err := strconv.Atoi(entry.Name())
			require.NoError(t, err)
			raw, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
			left, err := strconv.Atoi(string(raw))
			require.NoError(t, err)
			t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
			if len(known) == 3 {
				break // the last service keeps running
			}
			require.NoError(t, syscall.Kill(service, syscall.SIGKILL))
			m.eventually(func() bool { return parent(t, left) == command.Process.Pid })
			require.NoError(t, syscall.Kill(left, syscall.SIGKILL))
			m.eventually(func() bool { return syscall.Kill(left, 0) != nil })
		}
	}
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	require.NoError(t, command.Wait(), "it waits for the service, and not for what that left")
	for name := range known {
		pid, err := strconv.Atoi(name)
		require.NoError(t, err)
		assert.Error(t, syscall.Kill(pid, 0))
	}
}

// parent returns the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	number, err := strconv.Atoi(fields[1])
	require.NoError(t, err)
	return number
}
