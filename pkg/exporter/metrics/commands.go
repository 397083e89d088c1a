package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// commandUse is the usage by a container's processes with the same command.
type commandUse struct {
	command             string
	memory, utilization float64
}

// Commands with series of their own; the others share one. A process can change its command at any time, so a container gets at most
// maxCommands names on a device as long as it uses the device.
const (
	topCommands   = 8
	maxCommands   = 32
	otherCommands = "other"
)

// Joiner joins the rounds of one node, one after another. It remembers the commands of containers with series of their own. The zero value
// is ready. It is safe for concurrent use.
type Joiner struct {
	mu sync.Mutex
	// commands is keyed by the labels of a container and its device.
	commands map[string]map[string]bool
}

// split computes the usage of containers by command, if their claims request it.
func (j *Joiner) split(boards []*board, allocations []*Allocation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	kept := map[string]map[string]bool{}
	for _, a := range allocations {
		if !a.Options.PerProcess {
			continue
		}
		for _, c := range a.Containers {
			key := string(containerLabels(c, a.GPU, a.MIG))
			if kept[key] = j.commands[key]; kept[key] == nil {
				kept[key] = map[string]bool{}
			}
		}
	}
	j.commands = kept
	for _, b := range boards {
		for _, d := range b.all {
			for _, h := range d.holders {
				if h.perProcess {
					h.uses = h.commands(kept[string(h.labels)])
				}
			}
		}
	}
}

// commands are a container's usage by command: the commands with the highest usage, and the rest. A command without a name of its own gets
// one, unless there are too many.
func (h *holder) commands(named map[string]bool) []commandUse {
	byCommand := map[string][]*Process{}
	for _, p := range h.processes {
		command := bounded(p.Command, maxCommand)
		byCommand[command] = append(byCommand[command], p)
	}
	rest := byCommand[otherCommands]
	delete(byCommand, otherCommands)
	var uses []commandUse
	for _, use := range byUse(byCommand) {
		if len(uses) == topCommands || !named[use.command] && len(named) >= maxCommands {
			rest = append(rest, byCommand[use.command]...)
			continue
		}
		named[use.command] = true
		uses = append(uses, use)
	}
	if len(rest) > 0 {
		uses = append(uses, commandUse{otherCommands, memoryOf(rest), utilizationOf(rest, math.NaN())})
	}
	return uses
}

// byUse are the commands, sorted by usage, the highest first.
func byUse(byCommand map[string][]*Process) []commandUse {
	uses := make([]commandUse, 0, len(byCommand))
	for command, processes := range byCommand {
		uses = append(uses, commandUse{command, memoryOf(processes), utilizationOf(processes, math.NaN())})
	}
	slices.SortFunc(uses, func(a, b commandUse) int {
		if less := compare(b.memory, a.memory); less != 0 {
			return less
		}
		if less := compare(b.utilization, a.utilization); less != 0 {
			return less
		}
		return strings.Compare(a.command, b.command)
	})
	return uses
}

// compare orders numbers, no value first.
func compare(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b) || a == b:
		return 0
	case math.IsNaN(a) || a < b:
		return -1
	}
	return 1
}
