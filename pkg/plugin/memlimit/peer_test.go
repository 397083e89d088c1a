package memlimit

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// TestServer_OtherUser_Refused: even if the permissions of the socket and of its directory let the user connect.
func TestServer_OtherUser_Refused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to connect as another user")
	}
	w := newWorld(t)
	w.serve(t)
	require.NoError(t, os.Chmod(w.dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(w.server.Socket), 0o755))
	require.NoError(t, os.Chmod(w.server.Socket, 0o666))
	line, err := json.Marshal(protocol.LimitRequest{LimitedDevice: protocol.LimitedDevice{Claim: "uid", Device: share}, Cgroup: cgroup})
	require.NoError(t, err)
	for user, want := range map[int]string{0: "", 65534: "user 65534: " + gpu.ErrPermission.Error()} {
		connection := connectAs(t, user, w.server.Socket)
		// The server may have answered another user, and closed the connection, before the request is written.
		if _, err := connection.Write(append(line, '\n')); want == "" {
			require.NoError(t, err)
		}
		raw, err := bufio.NewReader(connection).ReadBytes('\n')
		require.NoError(t, err)
		var answer protocol.LimitAnswer
		require.NoError(t, json.Unmarshal(raw, &answer))
		assert.Equal(t, want, answer.Error)
	}
	assert.Equal(t, 1, w.driver.sets)
}

// connectAs connects a thread that has become a user, and ends it.
func connectAs(t *testing.T, user int, socket string) net.Conn {
	t.Helper()
	connected := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, other ones keep their user
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user))
		if errno != 0 {
			failed <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
		}
		if err != nil {
			failed <- err
			return
		}
		connected <- fd
	}()
	select {
	case err := <-failed:
		require.NoError(t, err)
	case fd := <-connected:
		file := os.NewFile(uintptr(fd), socket)
		defer func() { _ = file.Close() }()
		connection, err := net.FileConn(file)
		require.NoError(t, err)
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
	return nil
}
