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

// childProgram is the environment variable with the program that the child process of these tests runs.
const childProgram = "PRISM_TEST_NVIDIA_SMI"

// TestMain also is the child process: a plugin that sets an interval until it is killed.
func TestMain(m *testing.M) {
	program := os.Getenv(childProgram)
	if program == "" {
		os.Exit(m.Run())
	}
	tool := &Tool{Find: func() (Install, error) { return Install{Program: program, Root: "/"}, nil }, Timeout: time.Hour}
	if err := tool.SetTimeslice(context.Background(), someGPU, gpu.IntervalLong); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// A program that outlived its plugin could overwrite the interval that the next plugin sets.
func TestSetTimeslice_PluginKilled_ProgramKilled(t *testing.T) {
	t.Parallel()
	// The program holds the write end of a pipe open until it exits.
	install, err := scripted(t, "exec 3>/proc/$PPID/fd/3; echo $$ >&3; exec sleep 3600").Find()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = read.Close() }()
	plugin := exec.Command(self)
	plugin.Env = append(os.Environ(), childProgram+"="+install.Program)
	plugin.ExtraFiles = []*os.File{write}
	require.NoError(t, plugin.Start())
	require.NoError(t, write.Close())
	const deadline = time.Minute
	require.NoError(t, read.SetReadDeadline(time.Now().Add(deadline)))
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
	if !assert.ErrorIs(t, err, io.EOF, "the program is still running") {
		program, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, program.Kill())
	}
}
