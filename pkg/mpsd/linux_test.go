package mpsd

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinuxRun_LongOutput_StartRemains(t *testing.T) {
	t.Parallel()
	output, code, err := Linux{}.Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"sh", "-c", "head -c 200000 /dev/zero; exit 3"}})
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	assert.Len(t, output, outputLimit)
}

// A container chooses the programs of its processes, which have PIDs on the host.
func TestCommand_PIDOfAnotherProcess_NotRun(t *testing.T) {
	t.Parallel()
	other := exec.CommandContext(t.Context(), "cat") // it would print the commands
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	p, exists := processes.Process(other.Process.Pid)
	require.True(t, exists)
	d := &daemon{id: "a", service: &Service{Options: Options{System: Linux{}, Times: longTimes()}}}
	d.state.Daemon = p
	output, err := d.command(t.Context(), "a", "b")
	require.NoError(t, err)
	assert.Equal(t, "a\nb\n", output)
	d.state.Daemon.Start--
	_, err = d.command(t.Context(), "a", "b")
	require.EqualError(t, err, fmt.Sprintf("a, b: opening the program of control daemon a: process %d exited", p.PID))
	require.NoError(t, stdin.Close())
	require.NoError(t, other.Wait())
}

func TestLinuxKill_PIDOfAnotherProcess_NotKilled(t *testing.T) {
	t.Parallel()
	other := exec.CommandContext(t.Context(), "cat")
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	p, exists := processes.Process(other.Process.Pid)
	require.True(t, exists)
	before := p
	before.Start--
	require.NoError(t, Linux{}.Kill(before))
	done, err := exited(before)
	require.NoError(t, err)
	<-done
	done, err = exited(p)
	require.NoError(t, err)
	select {
	case <-done:
		assert.Fail(t, "the other process exited")
	default:
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, other.Wait(), "it exited by itself")
	<-done
	require.NoError(t, Linux{}.Kill(p))
}
