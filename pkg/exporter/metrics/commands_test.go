package metrics_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

const memoryByCommand = "prism_container_gpu_process_memory_used_bytes"

func TestJoin_PerProcess_TopCommandsAndOther(t *testing.T) {
	var processes []metrics.Process
	for i := range 12 {
		p := process(uint32(i+1), "one/main", float64(i+1)*1e6, 0.01)
		p.Command = fmt.Sprintf("worker-%02d", i)
		processes = append(processes, p)
	}
	processes[11].Command = "other"
	g, list := timeSliced(processes...)
	list[0].Options.PerProcess = true
	families := native(t, join(g, list...))
	name := "prism_container_gpu_process_memory_used_bytes"
	assert.Len(t, samples(families, name), 9)
	assert.InDelta(t, 11e6, value(t, families, name, "command", "worker-10"), 0)
	assert.InDelta(t, 12e6+1e6+2e6+3e6, value(t, families, name, "command", "other"), 0)
	assert.InDelta(t, 0.04, value(t, families, "prism_container_gpu_process_utilization_ratio", "command", "other"), 1e-9)
}

// TestJoiner_CommandsNamedAgainAndAgain_Bounded: a process names its command as it likes, and each name is a series for good.
func TestJoiner_CommandsNamedAgainAndAgain_Bounded(t *testing.T) {
	var joiner metrics.Joiner
	g, list := timeSliced()
	list[0].Options.PerProcess = true
	round := func(list []metrics.Allocation, commands ...string) (named []string) {
		g.Processes = nil
		for i, command := range commands {
			p := process(uint32(i+1), "one/main", float64(i+1)*1e6, 0.01)
			p.Command = command
			g.Processes = append(g.Processes, p)
		}
		j := joiner.Join(&metrics.Snapshot{GPUs: []*metrics.GPU{g}}, &metrics.Allocations{List: list}, metrics.Exporter{})
		for _, m := range samples(native(t, j), memoryByCommand) {
			named = append(named, labelOf(m, "command"))
		}
		return named
	}
	all := map[string]bool{}
	for i := range 100 {
		commands := make([]string, 0, 8)
		for k := range 8 {
			commands = append(commands, fmt.Sprint("worker", 8*i+k))
		}
		for _, command := range round(list, commands...) {
			all[command] = true
		}
	}
	assert.Len(t, all, 33, "32 names and other")
	assert.Equal(t, []string{"worker31", "worker3", "other"}, round(list, "worker3", "late", "worker31"), "known ones keep their series")

	joiner.Join(nil, &metrics.Allocations{List: list}, metrics.Exporter{})
	assert.Equal(t, []string{"other"}, round(list, "late"), "a round without the GPU forgets nothing")
	round(list[1:], "late")
	assert.Equal(t, []string{"late"}, round(list, "late"), "it is another container once this one is gone")
}
