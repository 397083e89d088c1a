package allocation

import (
	"slices"
	"strings"
)

const (
	// idLength is the length of container ids of every runtime with CRI.
	idLength = 64
	// mostNested limits the nested cgroups that are considered, because containers can create any number of them.
	mostNested = 16
)

// containerIDs lists the container ids in a process's cgroups, outermost first, from the content of a file /proc/<pid>/cgroup. Not every
// hierarchy contains every process in its container's cgroup; if two hierarchies differ, the process belongs to the containers of both.
func containerIDs(raw []byte) []string {
	var found []string
	for line := range strings.Lines(string(raw)) {
		// The format is "hierarchy:controllers:path"; only the path may contain further colons.
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		ids := pathIDs(fields[2])
		same := 0
		for same < min(len(ids), len(found)) && ids[same] == found[same] {
			same++
		}
		switch {
		case same == len(found):
			found = ids // the same ids, and perhaps more
		case same < len(ids):
			return found[:same]
		}
	}
	return found
}

// pathIDs lists the ids in the path of a cgroup.
func pathIDs(path string) []string {
	var ids []string
	for part := range strings.SplitSeq(path, "/") {
		if id := containerID(part); id != "" && !slices.Contains(ids, id) {
			// A substring of the path would keep the whole path in memory, and a container can make it arbitrarily long.
			if ids = append(ids, strings.Clone(id)); len(ids) == mostNested {
				break
			}
		}
	}
	return ids
}

// containerID returns the id in the name of a cgroup: "<id>" of the cgroupfs driver, "<runtime>-<id>.scope" of systemd, or
// "<parent>:<runtime>:<id>" if the runtime interprets the name for systemd as a path. Empty without an id.
func containerID(part string) string {
	part = strings.TrimSuffix(part, ".scope")
	if len(part) < idLength {
		return ""
	}
	runtime, id := part[:len(part)-idLength], part[len(part)-idLength:]
	if strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	// CRI-O also runs a monitor for each container, in "crio-conmon-<id>.scope".
	if runtime != "" && !strings.HasSuffix(runtime, "-") && !strings.HasSuffix(runtime, ":") || strings.HasSuffix(runtime, "conmon-") {
		return ""
	}
	return id
}
