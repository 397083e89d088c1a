package mpsd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCutLogs_LongerThanLimit_EndRemains(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := strings.Repeat("x", 1023) + "\n"
	appended, err := os.OpenFile(filepath.Join(dir, "daemon.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer appended.Close()
	positioned, err := os.Create(filepath.Join(dir, "server.log"))
	require.NoError(t, err)
	defer positioned.Close()
	for _, f := range []*os.File{appended, positioned} {
		_, err := f.WriteString(strings.Repeat(line, 1024))
		require.NoError(t, err)
	}
	require.NoError(t, cutLogs(dir))
	assert.Equal(t, int64(logLimit), logSize(appended.Name()), "not longer than the limit")
	for _, f := range []*os.File{appended, positioned} {
		_, err := f.WriteString("the end\n")
		require.NoError(t, err)
	}
	require.NoError(t, cutLogs(dir))
	for _, f := range []*os.File{appended, positioned} {
		assert.Equal(t, int64(logLimit/2), logSize(f.Name()))
		_, err := f.WriteString("more\n")
		require.NoError(t, err)
		require.NoError(t, cutLogs(dir))
	}
	text, err := os.ReadFile(appended.Name())
	require.NoError(t, err)
	assert.True(t, bytes.HasSuffix(text, []byte("x\nthe end\nmore\n")))
	assert.Equal(t, "the end; more", logAfterLines(appended.Name()))
	text, err = os.ReadFile(positioned.Name())
	require.NoError(t, err)
	assert.True(t, bytes.HasSuffix(text, []byte("\x00more\n")), "after a hole")
	assert.Less(t, int64(logLimit), logSize(positioned.Name()))
	require.NoError(t, cutLogs(filepath.Join(dir, "absent")))
}

// logAfterLines returns the log without long lines.
func logAfterLines(path string) string {
	return lastLines(path, logSize(path)-int64(len("the end\nmore\n")))
}

func TestLastLines_Commands_LeftOut(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "daemon.log")
	text := ""
	for _, message := range []string{"first", "NEW UI", "Cmd:get_server_list", "12", "50.0", "Server 12 exited with status 1", "Exit"} {
		text += fmt.Sprintf("[2026-01-01 00:00:00.000 Control     7] %s\n", message)
	}
	require.NoError(t, os.WriteFile(log, []byte(text), 0o600))
	assert.Equal(t, "first; Server 12 exited with status 1; Exit", strings.ReplaceAll(lastLines(log, 0), "[2026-01-01 00:00:00.000 Control     7] ", ""))
	assert.Empty(t, lastLines(log+".absent", 0))
}

func TestService_LongLog_CutWhileRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, string(daemonID), "log", "server.log")
	require.NoError(t, os.MkdirAll(filepath.Dir(log), 0o755))
	require.NoError(t, os.WriteFile(log, make([]byte, logLimit), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := New(ctx, Options{Dir: dir, System: Linux{}})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.cutLogs(ctx)
	}()
	// A client can fill the log at any time.
	for range 2 {
		require.NoError(t, os.WriteFile(log, bytes.Repeat([]byte("x"), logLimit+1), 0o600))
		require.Eventually(t, func() bool { return logSize(log) == logLimit/2 }, deadline, time.Millisecond)
	}
	cancel()
	<-done
}

// TestExit_Status_SignalOrCode: the text includes the end of the log if there is one.
func TestExit_Status_SignalOrCode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("[1] one\n"), 0o600))
	for status, want := range map[syscall.WaitStatus]string{
		0:                                       "it exited with code 0; its log ends: [1] one",
		1 << 8:                                  "it exited with code 1; its log ends: [1] one",
		syscall.WaitStatus(unix.SIGKILL):        "it was killed by signal 9 (killed); its log ends: [1] one",
		syscall.WaitStatus(unix.SIGSEGV) | 0x80: "it was killed by signal 11 (segmentation fault); its log ends: [1] one",
	} {
		assert.Equal(t, want, exitOf(status)+logEnd(path, 0))
	}
	assert.Empty(t, logEnd(path+"-none", 0))
	assert.Contains(t, (&daemon{}).exited(), "an unknown status")
}
