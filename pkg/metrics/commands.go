package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// commandUse is what a container's processes with one command use.
type commandUse struct {
	command             string
	memory, utilization float64
}

// Commands that have series of their own; the others share one. A process names its command itself and at any time, so a container has no more
// than maxCommands names on a device as long as it has it.
const (
	topCommands   = 8
	maxCommands   = 32
	otherCommands = "other"
)

// Joiner joins the rounds of one node one after another. It keeps which commands of containers have series. The zero value has none. It is
// safe for concurrent use.
type Joiner struct {
	mu sync.Mutex
	// commands are by the labels of a container and its device.
	commands map[string]map[string]bool
}

// split fills in what containers use by command, where their claims ask for it.
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

// commands are what a container's processes use by command: those that use most, and the rest. A command that is not one of the named ones
// becomes one of them, unless there are too many.
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

// byUse are the commands, that which uses most first.
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
