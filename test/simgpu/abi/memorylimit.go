package abi

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// memoryLimitSymbols are written by hand in C: their structs name the cgroup by a pointer to its path.
var memoryLimitSymbols = []Symbol{
	written("nvmlDeviceSetMemoryLimits_v1", 615, setMemoryLimits, u64("cgroup"), u64("soft"), u64("hard")),
	written("nvmlDeviceGetMemoryLimits_v1", 615, memoryLimits, u64("cgroup"), outU64("soft"), outU64("hard"), outU64("used")),
}

func written(name string, since int, answer answer, params ...Param) Symbol {
	symbol := device(name, since, answer, params...)
	symbol.Place = Written
	return symbol
}

func setMemoryLimits(c *call) error {
	return c.session.SetMemoryLimits(c.device(), c.u64(1), model.MemoryLimits{Soft: c.u64(2), Hard: c.u64(3)}, c.caller.Root)
}

func memoryLimits(c *call) error {
	limits, err := c.session.MemoryLimits(c.device(), c.u64(1))
	if err != nil {
		return err
	}
	c.outputs[2], c.outputs[3] = record{}.u64(limits.Soft), record{}.u64(limits.Hard)
	return c.putU64(4, limits.Used)
}

// cgroups lists the cgroups (v2) of a process from its own up to the root, which is not listed, by the inodes of their directories; none
// without a cgroup2 mount.
func cgroups(pid int) []uint64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	mount := cgroupMount()
	var ids []uint64
	for line := range strings.Lines(string(text)) {
		path, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ; unified && mount != "" && path != "/" && path != "."; path = filepath.Dir(path) {
			var stat syscall.Stat_t
			if syscall.Stat(filepath.Join(mount, path), &stat) == nil {
				ids = append(ids, stat.Ino)
			}
		}
	}
	return ids
}

func cgroupMount() string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return fields[4]
		}
	}
	return ""
}
