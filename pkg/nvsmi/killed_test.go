package nvsmi

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// toolOfChild names the program that the child process of these tests runs.
const toolOfChild = "PRISM_TEST_NVIDIA_SMI"

// TestMain is also the child process: a plugin that sets an interval until it is killed.
func TestMain(m *testing.M) {
	program := os.Getenv(toolOfChild)
	if program == "" {
		os.Exit(m.Run())
	}
	tool := &Tool{Find: func() (Install, error) { return Install{Program: program, Root: "/"}, nil }, Timeout: time.Hour}
	if err := tool.SetTimeslice(context.Background(), someGPU, gpu.IntervalLong); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// TestSetTimeslice_PluginKilled_ProgramDies: it could undo what the next plugin sets.
func TestSetTimeslice_PluginKilled_ProgramDies(t *testing.T) {
	t.Parallel()
	// The program keeps the end of a pipe that its plugin was given, as long as it lives.
	install, err := scripted(t, "exec 3>/proc/$PPID/fd/3; echo $$ >&3; exec sleep 3600").Find()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = read.Close() }()
	plugin := exec.Command(self)
	plugin.Env = append(os.Environ(), toolOfChild+"="+install.Program)
	plugin.ExtraFiles = []*os.File{write}
	require.NoError(t, plugin.Start())
	require.NoError(t, write.Close())
	const patience = 10 * time.Second
	require.NoError(t, read.SetReadDeadline(time.Now().Add(patience)))
	lines := bufio.NewReader(read)
	line, err := lines.ReadString('\n')
	if err != nil {
		_ = plugin.Process.Kill()
	}
	require.NoError(t, err, "the program does not run")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)

	require.NoError(t, plugin.Process.Kill())
	require.Error(t, plugin.Wait())
	_, err = lines.ReadByte()
	if !assert.ErrorIs(t, err, io.EOF, "the program lives on") {
		program, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, program.Kill())
	}
}
