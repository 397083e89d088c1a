//go:build linux

// Package cgroup creates and removes the control groups of a cluster in every hierarchy of the machine.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Hierarchy is one mounted tree of control groups.
type Hierarchy struct {
	Path string
	// Unified is true for cgroup version 2.
	Unified bool
}

// Hierarchies lists the hierarchies that this process sees.
func Hierarchies() ([]Hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing the cgroup hierarchies: %w", err)
	}
	return parse(string(text)), nil
}

// parse parses mountinfo: the mount point is field 5, the type follows the single dash.
func parse(mountinfo string) []Hierarchy {
	var found []Hierarchy
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 5 || dash+1 >= len(fields) {
			continue
		}
		h := Hierarchy{Path: fields[4], Unified: fields[dash+1] == "cgroup2"}
		if (h.Unified || fields[dash+1] == "cgroup") && !slices.Contains(found, h) {
			found = append(found, h)
		}
	}
	return found
}

// The pods of all clusters together get the weight of four processes outside, like the pods of a node with four processors: with the weight
// of one process, the kernel's default, the pods of three clusters starve behind the API servers and kubelets.
const (
	cpuShares = "4096" // cgroup version 1; one process has 1024
	cpuWeight = "400"  // version 2; one process has 100
)

// Create creates the group (a path such as /prism/default/n0) in every hierarchy and delegates the controllers to it. Its first path
// element gets the weight of four processes.
func Create(hierarchies []Hierarchy, group string) error {
	for _, h := range hierarchies {
		dir := filepath.Join(h.Path, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the control group %s: %w", dir, err)
		}
		if h.Unified {
			delegate(h.Path, group)
		}
		if err := h.weigh(strings.Split(strings.Trim(group, "/"), "/")[0]); err != nil {
			return fmt.Errorf("setting the weight of the control group %s: %w", group, err)
		}
	}
	return nil
}

// weigh sets the weight of a group in the hierarchy with the CPU controller.
func (h Hierarchy) weigh(group string) error {
	name, weight := "cpu.shares", cpuShares
	if h.Unified {
		name, weight = "cpu.weight", cpuWeight
	}
	file, err := os.OpenFile(filepath.Join(h.Path, group, name), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(weight)
	return errors.Join(err, file.Close())
}

// delegate enables the controllers on the way down to the group. A missing controller (on a hybrid machine all of them are missing) is not
// an error here: the kubelet names the ones that it misses.
func delegate(root, group string) {
	dir := root
	for _, name := range append(strings.Split(strings.Trim(group, "/"), "/"), "") {
		for _, controller := range []string{"cpu", "memory", "pids", "cpuset", "io", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
		dir = filepath.Join(dir, name)
	}
}

// Remove removes the group and all groups below it in every hierarchy. It retries groups whose processes are still exiting until the limit.
func Remove(hierarchies []Hierarchy, group string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		err := removeOnce(hierarchies, group)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func removeOnce(hierarchies []Hierarchy, group string) error {
	var failed error
	for _, h := range hierarchies {
		if err := removeTree(filepath.Join(h.Path, group)); err != nil {
			failed = fmt.Errorf("removing the control group %s: %w", filepath.Join(h.Path, group), err)
		}
	}
	return failed
}

// removeTree removes directories bottom-up; the files in them belong to the kernel.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveEmpty removes the group in every hierarchy if nothing else uses it.
func RemoveEmpty(hierarchies []Hierarchy, group string) {
	for _, h := range hierarchies {
		_ = os.Remove(filepath.Join(h.Path, group))
	}
}
