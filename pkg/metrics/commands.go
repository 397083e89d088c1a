package metrics

import (
	"math"
	"slices"
	"strings"
)

// commandUse is what a container's processes with one command use.
type commandUse struct {
	command             string
	memory, utilization float64
}

// Commands that have series of their own; the others share one.
const (
	topCommands   = 8
	otherCommands = "other"
)

// commands are what a container's processes use by command: those that use most, and the rest.
func (h *holder) commands() []commandUse {
	byCommand := map[string][]*Process{}
	for _, p := range h.processes {
		command := bounded(p.Command, maxCommand)
		byCommand[command] = append(byCommand[command], p)
	}
	rest := byCommand[otherCommands]
	delete(byCommand, otherCommands)
	uses := make([]commandUse, 0, len(byCommand)+1)
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
	for len(uses) > topCommands {
		last := len(uses) - 1
		rest = append(rest, byCommand[uses[last].command]...)
		uses = uses[:last]
	}
	if len(rest) > 0 {
		uses = append(uses, commandUse{otherCommands, memoryOf(rest), utilizationOf(rest, math.NaN())})
	}
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
