package allocation

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// processes reads a /proc.
type processes struct {
	root string
	// host is the /proc in the host's file tree, which may be missing.
	host string

	mu sync.Mutex
	// seen contains the processes of the last rounds; a pid may be reused by the next one.
	seen map[uint32]seenProcess
}

// seenProcess is a process and the containers to which its cgroup may belong.
type seenProcess struct {
	start uint64
	ids   []string
}

const (
	// mostSeen limits the number of remembered processes.
	mostSeen = 4096
	// mostThreads limits the number of threads of a process that are inspected to find one that runs.
	mostThreads = 64
)

// processState is the state of a process.
type processState int

const (
	// absent: /proc has no such process.
	absent processState = iota
	// exited: it is not reaped yet, or exits while it is read.
	exited
	// threaded: its main thread has exited, others run.
	threaded
	running
)

// check returns why processes cannot be identified in this /proc, nil if they can: NVML reports pids of this process's pid namespace.
func (p *processes) check() error {
	self, err := os.Readlink(filepath.Join(p.root, "self"))
	if err != nil {
		return fmt.Errorf("%s belongs to another pid namespace than this process, or is not a /proc: %w", p.root, err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%s belongs to another pid namespace: set hostPID", p.root)
	}
	// The driver omits processes outside of this pid namespace, so its lists do not show the problem.
	if outside, err := os.Readlink(filepath.Join(p.host, "self")); err == nil && outside != self {
		return errors.New("this process does not run in the host's pid namespace and cannot see processes of other containers: set hostPID")
	}
	return nil
}

// read returns a process and the container ids in its cgroups, outermost first. A process that has exited has no identity.
func (p *processes) read(pid uint32) (identity metrics.ProcessIdentity, ids []string, state processState) {
	identity, state = p.stat(p.path(pid))
	if state != running && state != threaded {
		return metrics.ProcessIdentity{}, nil, state
	}
	p.mu.Lock()
	before, seen := p.seen[pid]
	p.mu.Unlock()
	if seen && before.start == identity.Start {
		return identity, before.ids, running
	}
	raw, err := p.cgroup(pid, state)
	// A container that can create cgroups can make its path longer than the kernel shows. Its process then belongs to no known container.
	if err != nil && !errors.Is(err, syscall.ENAMETOOLONG) {
		return metrics.ProcessIdentity{}, nil, exited
	}
	// Another process may have reused the pid between the two reads, and the main thread may have exited.
	if again, after := p.stat(p.path(pid)); after != state || again.Start != identity.Start {
		return metrics.ProcessIdentity{}, nil, exited
	}
	if ids = containerIDs(raw); len(ids) == 0 {
		return identity, nil, running
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= mostSeen {
		clear(p.seen)
	}
	p.seen[pid] = seenProcess{identity.Start, ids}
	return identity, ids, running
}

// cgroup reads the cgroups of a process. If its main thread has exited, it reads the cgroups of another thread: cgroup v1 then shows the
// main thread in the root.
func (p *processes) cgroup(pid uint32, state processState) ([]byte, error) {
	if state != threaded {
		return os.ReadFile(filepath.Join(p.path(pid), "cgroup"))
	}
	tasks, err := os.Open(filepath.Join(p.path(pid), "task"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = tasks.Close() }()
	names, err := tasks.Readdirnames(mostThreads)
	if err != nil {
		return nil, err
	}
	for _, tid := range names {
		task := filepath.Join(tasks.Name(), tid)
		raw, err := os.ReadFile(filepath.Join(task, "stat"))
		if err != nil || !threadRuns(raw) {
			continue
		}
		if raw, err = os.ReadFile(filepath.Join(task, "cgroup")); err == nil || errors.Is(err, syscall.ENAMETOOLONG) {
			return raw, err
		}
	}
	return nil, fmt.Errorf("process %d: no thread is running: %w", pid, fs.ErrNotExist)
}

func (p *processes) path(pid uint32) string {
	return filepath.Join(p.root, strconv.FormatUint(uint64(pid), 10))
}

// stat reads the file stat in a process's directory.
func (p *processes) stat(dir string) (metrics.ProcessIdentity, processState) {
	raw, err := os.ReadFile(filepath.Join(dir, "stat"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return metrics.ProcessIdentity{}, absent
	case err != nil:
		return metrics.ProcessIdentity{}, exited
	}
	return parseStat(raw)
}

// The fields of a file stat after the command.
const (
	statState, statParent, statThreads, statStart = 0, 1, 17, 19
)

// statFields splits the content of a file stat, nil if it is invalid. The command is in parentheses, and may contain parentheses.
func statFields(raw []byte) (command string, fields []string) {
	first, last := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if first < 0 || last < first {
		return "", nil
	}
	if fields = strings.Fields(string(raw[last+1:])); len(fields) <= statStart {
		return "", nil
	}
	return string(raw[first+1 : last]), fields
}

// parentOf returns the pid of a process's parent.
func (p *processes) parentOf(pid uint32) (parent uint32, ok bool) {
	raw, err := os.ReadFile(filepath.Join(p.path(pid), "stat"))
	if err != nil {
		return 0, false
	}
	_, fields := statFields(raw)
	if fields == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[statParent], 10, 32)
	return uint32(n), err == nil && n > 0
}

// threadRuns reports whether a thread has not exited, from the content of its file stat.
func threadRuns(raw []byte) bool {
	_, fields := statFields(raw)
	return fields != nil && fields[statState] != "Z" && fields[statState] != "X"
}

// parseStat parses the content of a file /proc/<pid>/stat. The state is the state of the main thread; the process runs as long as another
// thread does.
func parseStat(raw []byte) (metrics.ProcessIdentity, processState) {
	command, fields := statFields(raw)
	if fields == nil {
		return metrics.ProcessIdentity{}, exited
	}
	state := running
	if !threadRuns(raw) {
		threads, err := strconv.Atoi(fields[statThreads])
		if err != nil || threads < 2 || fields[statState] == "X" {
			return metrics.ProcessIdentity{}, exited
		}
		state = threaded
	}
	start, err := strconv.ParseUint(fields[statStart], 10, 64)
	if err != nil {
		return metrics.ProcessIdentity{}, exited
	}
	return metrics.ProcessIdentity{Start: start, Command: command}, state
}
