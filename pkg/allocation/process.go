package allocation

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/prism-gpu/prism/pkg/metrics"
)

// processes reads a /proc.
type processes struct {
	root string

	mu sync.Mutex
	// seen has the processes of the last rounds; a pid may be another process in the next one.
	seen map[uint32]seenProcess
}

// seenProcess is a process and the containers that its cgroup may be of.
type seenProcess struct {
	start uint64
	ids   []string
}

// mostSeen bounds what is kept of processes.
const mostSeen = 4096

// check says why processes cannot be identified there, nil if they can: NVML reports pids of this process's pid namespace.
func (p *processes) check() error {
	self, err := os.Readlink(filepath.Join(p.root, "self"))
	if err != nil {
		return fmt.Errorf("%s is of another pid namespace than this process, or no /proc: %w", p.root, err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%s is of another pid namespace: set hostPID", p.root)
	}
	return nil
}

// read returns a process and the container ids in its cgroups, outermost first; false if it has exited.
func (p *processes) read(pid uint32) (identity metrics.ProcessIdentity, ids []string, running bool) {
	identity, running = p.stat(pid)
	if !running {
		return identity, nil, false
	}
	p.mu.Lock()
	before, seen := p.seen[pid]
	p.mu.Unlock()
	if seen && before.start == identity.Start {
		return identity, before.ids, true
	}
	raw, err := os.ReadFile(p.path(pid, "cgroup"))
	if err != nil {
		return identity, nil, false
	}
	// Another process may have got the pid between the two files.
	if again, running := p.stat(pid); !running || again.Start != identity.Start {
		return identity, nil, false
	}
	if ids = containerIDs(raw); len(ids) == 0 {
		return identity, nil, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= mostSeen {
		clear(p.seen)
	}
	p.seen[pid] = seenProcess{identity.Start, ids}
	return identity, ids, true
}

func (p *processes) path(pid uint32, file string) string {
	return filepath.Join(p.root, strconv.FormatUint(uint64(pid), 10), file)
}

func (p *processes) stat(pid uint32) (metrics.ProcessIdentity, bool) {
	raw, err := os.ReadFile(p.path(pid, "stat"))
	if err != nil {
		return metrics.ProcessIdentity{}, false
	}
	return parseStat(raw)
}

// parseStat reads the content of a file /proc/<pid>/stat, false for a process that has exited and is not reaped.
func parseStat(raw []byte) (metrics.ProcessIdentity, bool) {
	const state, startTime = 0, 19 // of the fields after the command
	// The command is in parentheses, and may contain some.
	first, last := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if first < 0 || last < first {
		return metrics.ProcessIdentity{}, false
	}
	fields := strings.Fields(string(raw[last+1:]))
	if len(fields) <= startTime || fields[state] == "Z" || fields[state] == "X" {
		return metrics.ProcessIdentity{}, false
	}
	start, err := strconv.ParseUint(fields[startTime], 10, 64)
	return metrics.ProcessIdentity{Start: start, Command: string(raw[first+1 : last])}, err == nil
}
