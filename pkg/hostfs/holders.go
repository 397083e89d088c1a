package hostfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Holder is a process that has a device node open.
type Holder struct {
	PID int
	// Program is the file name of its program, Command the name that it has given itself; either may be empty.
	Program, Command string
	// Container is the ID of its container, PodUID the UID of its pod; empty outside of containers and pods.
	Container, PodUID string
}

// mostHolders bounds the processes that Holders returns, commandLimit the length of a command.
const (
	mostHolders  = 256
	commandLimit = 64
)

// Holders lists the processes with an open device node of that path, as the process sees it: containers have the nodes of GPUs at the paths
// of the host. It lists at most 256, by PID. Processes that exit meanwhile are left out.
func (f *FS) Holders(ctx context.Context, device string) ([]Holder, error) {
	seen, err := f.resolve("/proc")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(seen)
	if err != nil {
		return nil, fmt.Errorf("listing processes in %w", hostError("/proc", err))
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	var found []Holder
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("finding processes that have %s open: %w", device, err)
		}
		dir := filepath.Join(seen, strconv.Itoa(pid))
		if has(filepath.Join(dir, "fd"), device) {
			found = append(found, holder(pid, dir))
		}
		if len(found) == mostHolders {
			break
		}
	}
	return found, nil
}

// has reports whether a directory of open files has one at that path. It never opens the files.
func has(dir, device string) bool {
	opened, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer opened.Close()
	const batch = 256 // a process may have any number of files
	for {
		names, err := opened.Readdirnames(batch)
		for _, name := range names {
			if to, err := os.Readlink(filepath.Join(dir, name)); err == nil && to == device {
				return true
			}
		}
		if err != nil || len(names) == 0 {
			return false
		}
	}
}

// holder reads the facts about a process from its directory in /proc.
func holder(pid int, dir string) Holder {
	h := Holder{PID: pid}
	if program, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		h.Program = filepath.Base(program)
	}
	if command, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
		h.Command = strings.TrimSpace(string(command[:min(len(command), commandLimit)]))
	}
	if cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
		h.PodUID, h.Container = podOf(string(cgroups))
	}
	return h
}

var (
	// podCgroup is the cgroup of a pod, containerCgroup the cgroup of a container below it, for both drivers of cgroups.
	podCgroup       = regexp.MustCompile(`^(?:kubepods.*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
	containerCgroup = regexp.MustCompile(`^(?:[a-z-]+[-:])?([0-9a-f]{64})(?:\.scope)?$`)
)

// podOf returns the pod and the container of a process by the content of its file cgroup: the outermost ones, as containers can create
// cgroups below their own.
func podOf(cgroups string) (pod, container string) {
	for line := range strings.Lines(cgroups) {
		_, path, _ := strings.Cut(line, ":/")
		for part := range strings.SplitSeq(strings.TrimSpace(path), "/") {
			if m := podCgroup.FindStringSubmatch(part); m != nil && pod == "" {
				pod = strings.ReplaceAll(m[1], "_", "-")
			}
			if m := containerCgroup.FindStringSubmatch(part); m != nil && container == "" {
				container = m[1]
			}
		}
		if container != "" {
			break
		}
	}
	return pod, container
}
