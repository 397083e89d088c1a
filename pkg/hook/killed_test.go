package hook_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/hook"
)

// asHook is the environment variable that makes this program prism-hook.
const asHook = "HOOK_TEST_PROC"

func TestMain(m *testing.M) {
	if proc := os.Getenv(asHook); proc != "" {
		program := hook.Program{Stdin: os.Stdin, Parent: os.Getppid(), Proc: proc, RetryBudget: time.Minute, Pause: time.Millisecond}
		if err := program.Run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if static.path != "" {
		_ = os.RemoveAll(filepath.Dir(static.path))
	}
	os.Exit(code)
}

// node contains the objects of a host that the program uses: /proc with one process, a bundle, and the socket of the plugin.
type node struct {
	dir      string
	listener *net.UnixListener
}

func newNode(t *testing.T) node {
	t.Helper()
	dir, err := os.MkdirTemp("", "hook-") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "7"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "hook.sock")})
	require.NoError(t, err)
	require.NoError(t, listener.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = listener.Close() })
	return node{dir, listener}
}

// start starts the program and returns its stdin.
func (n node) start(t *testing.T, args ...string) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], args...)
	command.Env = []string{asHook + "=" + n.dir}
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	return command, stdin
}

// kill terminates the program like the kernel's out-of-memory killer.
func kill(t *testing.T, command *exec.Cmd) {
	t.Helper()
	require.NoError(t, command.Process.Kill())
	require.ErrorContains(t, command.Wait(), "signal: killed")
}

// files returns all files with their contents.
func (n node) files(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(n.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			found[path] = entry.Type().String()
			return err
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	}))
	return found
}

// TestProgram_KilledWhereverItWaits_NothingLeft: no subcommand changes a file, and the plugin sees that the connection closes.
func TestProgram_KilledWhereverItWaits_NothingLeft(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	limit := []string{"memory-limit", "--socket", n.listener.Addr().String(), "--claim", "uid", "--device", device}
	cgroup := filepath.Join(n.dir, "7", "cgroup")
	require.NoError(t, syscall.Mkfifo(cgroup, 0o600))
	before := n.files(t)
	exclusive := exclusiveArgs(n.listener.Addr().String(), n.dir)
	for _, args := range [][]string{exclusive, limit} {
		command, stdin := n.start(t, args...)
		_, err := io.WriteString(stdin, `{"id": "c", `) // the rest of the OCI state is missing
		require.NoError(t, err)
		kill(t, command)
	}
	state := stateOf(t, 7, n.dir)
	start := func(args ...string) *exec.Cmd {
		command, stdin := n.start(t, args...)
		_, err := io.WriteString(stdin, state)
		require.NoError(t, err)
		require.NoError(t, stdin.Close())
		return command
	}
	require.NoError(t, start(exclusive...).Wait(), "it waits for nothing else")
	command := start(limit...)
	pipe, err := os.OpenFile(cgroup, os.O_WRONLY, 0) // until the program reads it
	require.NoError(t, err)
	kill(t, command)
	require.NoError(t, pipe.Close())
	assert.Equal(t, before, n.files(t))

	require.NoError(t, os.Remove(cgroup))
	require.NoError(t, os.WriteFile(cgroup, []byte("0::/kubepods/c1\n"), 0o600))
	before = n.files(t)
	command = start(limit...)
	connection, err := n.listener.AcceptUnix() // it waits for the answer
	require.NoError(t, err)
	reader := bufio.NewReader(connection)
	request, err := reader.ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, request, "/kubepods/c1")
	kill(t, command)
	_, err = reader.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, before, n.files(t))
}
