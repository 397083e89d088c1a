package allocation

import (
	"slices"
	"strings"
)

const (
	// idLength is that of the container ids of every runtime with CRI.
	idLength = 64
	// mostNested is how many cgroups one in another can be containers'; containers make more of them as they like.
	mostNested = 16
)

// containerIDs lists the ids that a process's cgroups may be of, outermost first, from the content of a file /proc/<pid>/cgroup. Not every
// hierarchy has every process in its container's cgroup; where two have it in different ones, it is of those around both.
func containerIDs(raw []byte) []string {
	var found []string
	for line := range strings.Lines(string(raw)) {
		// "hierarchy:controllers:path"; only the path may have more colons.
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
			found = ids // the same, and perhaps more
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
			// A part of the path would keep all of it, which a container makes as long as it likes.
			if ids = append(ids, strings.Clone(id)); len(ids) == mostNested {
				break
			}
		}
	}
	return ids
}

// containerID returns the id in the name of a cgroup: "<id>" of the cgroupfs driver, "<runtime>-<id>.scope" of systemd, or
// "<parent>:<runtime>:<id>" where the runtime takes the name for systemd for a path. Empty without one.
func containerID(part string) string {
	part = strings.TrimSuffix(part, ".scope")
	if len(part) < idLength {
		return ""
	}
	runtime, id := part[:len(part)-idLength], part[len(part)-idLength:]
	if strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	// Beside each container, CRI-O runs a monitor in "crio-conmon-<id>.scope".
	if runtime != "" && !strings.HasSuffix(runtime, "-") && !strings.HasSuffix(runtime, ":") || strings.HasSuffix(runtime, "conmon-") {
		return ""
	}
	return id
}
