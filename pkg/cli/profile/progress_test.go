package profile_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli"
)

// TestDownload_OnATerminal_ShowsProgress: the line is removed at the end, and results are not written to stderr of the terminal.
func TestDownload_OnATerminal_ShowsProgress(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	shown := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(master) // returns an error when the terminal is closed
		shown <- text
	}()

	t.Setenv("KUBECONFIG", os.DevNull)
	s := newServer(t)
	s.add("a-1", random(1<<20))
	streams, _, stdout, _ := genericiooptions.NewTestIOStreams()
	streams.ErrOut = terminal
	command := cli.Command("test", streams)
	command.SetArgs([]string{"profile", "download", "a-1", "-O", t.TempDir(), "-s", s.URL, "-n", "team"})
	require.NoError(t, command.ExecuteContext(t.Context()))
	require.NoError(t, terminal.Close())
	text := string(<-shown)
	require.NoError(t, master.Close())
	assert.Contains(t, text, "  0%  0 of 1Mi  a-1.nsys-rep")
	assert.Contains(t, text, "\r\x1b[K")
	assert.NotContains(t, stdout.String(), "\x1b")
}
