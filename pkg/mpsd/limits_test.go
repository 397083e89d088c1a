package mpsd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

func TestInForce_ExactOrRounded_Accepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		memory     int64
		percentage int
		reported   gpu.MPSLimits
		want       bool
	}{
		{81037, 50, gpu.MPSLimits{MemoryMiB: 81037, ActiveThreadPercentage: 50}, true},
		{81037, 50, gpu.MPSLimits{MemoryMiB: 79 << 10, ActiveThreadPercentage: 50}, true},
		{81037, 50, gpu.MPSLimits{MemoryMiB: 80 << 10, ActiveThreadPercentage: 50}, false},
		{81037, 50, gpu.MPSLimits{MemoryMiB: 0, ActiveThreadPercentage: 50}, false},
		{700, 0, gpu.MPSLimits{MemoryMiB: 700}, true},
		{700, 0, gpu.MPSLimits{MemoryMiB: 0}, false},
		{0, 0, gpu.MPSLimits{}, true},
		{0, 0, gpu.MPSLimits{MemoryMiB: 1}, false},
		{0, 33, gpu.MPSLimits{ActiveThreadPercentage: 32.6}, true},
		{0, 33, gpu.MPSLimits{ActiveThreadPercentage: 34}, true},
		{0, 33, gpu.MPSLimits{ActiveThreadPercentage: 31.9}, false},
		{0, 1, gpu.MPSLimits{ActiveThreadPercentage: 1.5}, true},
		{0, 1, gpu.MPSLimits{}, false},
		{0, 0, gpu.MPSLimits{ActiveThreadPercentage: 1}, false},
		{0, 99, gpu.MPSLimits{ActiveThreadPercentage: 100}, true},
	} {
		spec := gpu.MPSDaemonSpec{MemoryMiB: c.memory, ActiveThreadPercentage: c.percentage}
		assert.Equal(t, c.want, inForce(spec, c.reported), "%d MiB, %d %%: %+v", c.memory, c.percentage, c.reported)
	}
}

// Each answer is assigned to its command, and a truncated text is not mistaken for a complete one.
func TestAnswersTo_LinesOfOneRun_AssignedOrIncomplete(t *testing.T) {
	t.Parallel()
	commands := append(byDefault.reads(), listServers)
	commands = append(append(commands, ofServer(7).reads()...), ofServer(8).reads()...)
	const last = "50.0"
	lines := []string{"50.0", last, "2G", last, "7", "8", last, "33.0", last, last, "Server 8 not found", last, "Server 8 not found", last}
	answers, complete := answersTo(commands, lines)
	require.True(t, complete)
	assert.Equal(t, [][]string{{"50.0"}, {"2G"}, {"7", "8"}, {"33.0"}, {}, {"Server 8 not found"}, {"Server 8 not found"}}, answers)
	for n := range lines {
		_, complete := answersTo(commands, lines[:n])
		assert.False(t, complete, n)
	}
	_, complete = answersTo(commands, append(lines, "x"))
	assert.False(t, complete)
}

// Limits of daemon and servers are read in one run of the user interface, and set in another.
func TestLimits_DaemonWithServer_OneProgramRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	programs := &counted{System: Linux{}}
	m.options.System = programs
	s := m.service()
	daemon := m.ensure(s)
	runs := func() int {
		n := programs.runs
		programs.runs = 0
		return n
	}
	runs()
	want := gpu.MPSLimits{MemoryMiB: 1024, ActiveThreadPercentage: 50} // MPS rounds 2000 MiB down to whole GiB
	inForce := func() gpu.MPSLimitsInForce {
		limits, err := s.Limits(t.Context(), daemonID)
		require.NoError(t, err)
		return limits
	}
	server := daemon.Servers[0]
	assert.Equal(t, gpu.MPSLimitsInForce{Default: want, Servers: map[int]gpu.MPSLimits{server: want}}, inForce())
	assert.Equal(t, 1, runs(), "programs run to read the limits")

	_, err := s.daemons[daemonID].command(t.Context(), strings.Join(byDefault.sets(gpu.MPSDaemonSpec{MemoryMiB: 7}, false), "\n"),
		fmt.Sprintf("set_%s 11", ofServer(server).percentage))
	require.NoError(t, err)
	assert.NotEqual(t, want, inForce().Default)
	assert.NotEqual(t, want, inForce().Servers[server])
	runs()
	_, err = s.RestoreLimits(t.Context(), daemonID, m.spec())
	require.NoError(t, err)
	assert.Equal(t, 2, runs(), "programs run to restore the limits")
	assert.Equal(t, gpu.MPSLimitsInForce{Default: want, Servers: map[int]gpu.MPSLimits{server: want}}, inForce())

	s.daemons[daemonID].state.Servers = nil // the server is not known yet
	runs()
	assert.Len(t, inForce().Servers, 1)
	assert.Equal(t, 2, runs())
}

// TestParse_DaemonWithoutMemoryLimits_RefusedOnlyWhereNeeded: NVIDIA's daemons of driver 535 and 550 give this answer to an unknown
// command.
func TestParse_DaemonWithoutMemoryLimits_RefusedOnlyWhereNeeded(t *testing.T) {
	t.Parallel()
	answers := [][]string{{"50.0"}, {`Unknown command "get_default_device_pinned_mem_limit"`}}
	limits, err := (&daemon{state: state.State{Spec: gpu.MPSDaemonSpec{ActiveThreadPercentage: 50}}}).parse(byDefault, answers)
	require.NoError(t, err)
	assert.Equal(t, gpu.MPSLimits{ActiveThreadPercentage: 50}, limits)
	_, err = (&daemon{state: state.State{Spec: gpu.MPSDaemonSpec{MemoryMiB: 1024}}}).parse(byDefault, answers)
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.EqualError(t, err, "a memory limit of MPS clients is not supported here: it needs a control daemon of driver 495 or later "+
		`(Unknown command "get_default_device_pinned_mem_limit")`)
}
