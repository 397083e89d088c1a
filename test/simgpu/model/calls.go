package model

import (
	"maps"
	"sort"
	"sync"
)

// maxProcesses bounds the memory of a long-running node.
const maxProcesses = 4096

// Calls counts NVML calls for each process.
type Calls struct {
	mu        sync.Mutex
	processes map[int]*ProcessCalls
	seen      uint64
}

// ProcessCalls counts the calls of one process by name of the NVML function.
type ProcessCalls struct {
	PID     int               `json:"pid"` // as the node's pid namespace counts; 0 when it cannot see the process
	Process string            `json:"process"`
	Counts  map[string]uint64 `json:"counts"`
	Total   uint64            `json:"total"`

	last uint64
}

// NewCalls returns empty counters.
func NewCalls() *Calls { return &Calls{processes: map[int]*ProcessCalls{}} }

// Add counts one call. A pid with another name is another process.
func (c *Calls) Add(pid int, process, call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	p := c.processes[pid]
	if p == nil || p.Process != process {
		c.makeRoom()
		p = &ProcessCalls{PID: pid, Process: process, Counts: map[string]uint64{}}
		c.processes[pid] = p
	}
	p.Counts[call]++
	p.Total++
	p.last = c.seen
}

// makeRoom drops the process whose last call is the oldest.
func (c *Calls) makeRoom() {
	if len(c.processes) < maxProcesses {
		return
	}
	oldest := 0
	quiet := c.seen + 1
	for pid, p := range c.processes {
		if p.last < quiet {
			oldest, quiet = pid, p.last
		}
	}
	delete(c.processes, oldest)
}

// List copies the counters, ordered by pid.
func (c *Calls) List() []ProcessCalls {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]ProcessCalls, 0, len(c.processes))
	for _, p := range c.processes {
		copied := *p
		copied.Counts = maps.Clone(p.Counts)
		list = append(list, copied)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].PID < list[j].PID })
	return list
}

// Of copies the counters of one process; they are zero for an unknown process.
func (c *Calls) Of(pid int) ProcessCalls {
	for _, p := range c.List() {
		if p.PID == pid {
			return p
		}
	}
	return ProcessCalls{PID: pid, Counts: map[string]uint64{}}
}
