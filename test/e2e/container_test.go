package e2e

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// libraryDir is the folder of the driver's libraries in a container of Debian.
const libraryDir = "/usr/lib/x86_64-linux-gnu"

// view lists the GPU resources that a container sees.
type view struct {
	devices map[string]numbers
	// uuids and migs list GPUs and MIG devices in the order of nvidia-smi -L.
	uuids, migs []string
	// libraries by name; false if they are writable.
	libraries map[string]bool
	// variables of the environment whose names begin with NVIDIA_.
	variables []string
}

// inspectScript prints one fact a line; the first word names it.
const inspectScript = `
for n in /dev/nvidia* /dev/nvidia-caps/* /dev/dri/*; do [ -e "$n" ] && [ ! -d "$n" ] && stat -c 'device %n %t %T' "$n"; done
for l in ` + libraryDir + `/libcuda.so* ` + libraryDir + `/libnvidia-ml.so*; do
	[ -e "$l" ] || continue
	if (: >>"$l") 2>/dev/null; then echo "library ${l##*/} writable"; else echo "library ${l##*/} fixed"; fi
done
env | sed -n 's/^NVIDIA_/variable NVIDIA_/p'
command -v nvidia-smi >/dev/null || exit 0
nvidia-smi -L | sed 's/^/smi /'
`

var (
	smiLine    = regexp.MustCompile(`^GPU (\d+): .+ \(UUID: (GPU-[0-9a-f-]{36})\)$`)
	smiMIGLine = regexp.MustCompile(`^  MIG \S+ +Device +\d+: \(UUID: (MIG-[0-9a-f-]{36})\)$`)
)

// inspect lists the GPU resources of a container.
func (ns *namespace) inspect(pod, container string) view {
	ns.t.Helper()
	v := view{devices: map[string]numbers{}, libraries: map[string]bool{}}
	for line := range strings.Lines(ns.do("exec", pod, "--container", container, "--", "sh", "-c", inspectScript)) {
		kind, fact, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "device":
			var path string
			var n numbers
			_, err := fmt.Sscanf(fact, "%s %x %x", &path, &n.major, &n.minor)
			require.NoError(ns.t, err, line)
			v.devices[path] = n
		case "library":
			name, mode, _ := strings.Cut(fact, " ")
			v.libraries[name] = mode == "fixed"
		case "variable":
			v.variables = append(v.variables, fact)
		case "smi":
			if match := smiMIGLine.FindStringSubmatch(fact); match != nil {
				v.migs = append(v.migs, match[1])
				continue
			}
			match := smiLine.FindStringSubmatch(fact)
			require.NotNil(ns.t, match, "nvidia-smi -L printed %q", fact)
			require.Equal(ns.t, fmt.Sprint(len(v.uuids)), match[1], "nvidia-smi -L printed %q", fact)
			v.uuids = append(v.uuids, match[2])
		}
	}
	return v
}

// sees checks that the container has exactly these GPUs and MIG devices with everything that belongs to them: device nodes with the node's
// numbers and with links in its /dev/char, the driver's libraries, and the UUIDs in nvidia-smi.
func (ns *namespace) sees(pod, container string, grants ...grant) {
	ns.t.Helper()
	v := ns.inspect(pod, container)
	gpus, migs := hardwareOf(grants)
	require.ElementsMatch(ns.t, gpus, v.uuids, "GPUs by nvidia-smi -L in %s/%s", pod, container)
	require.ElementsMatch(ns.t, migs, v.migs, "MIG devices by nvidia-smi -L in %s/%s", pod, container)

	devices := ns.nodeDevices(ns.t)
	for path := range devices {
		if gpuNode.MatchString(path) {
			delete(devices, path)
		}
	}
	for _, g := range grants {
		devices[fmt.Sprintf("/dev/nvidia%d", g.Minor)] = numbers{195, uint32(g.Minor)}
		if g.Type == "mig" {
			maps.Copy(devices, ns.capabilities(g))
		}
		if g.Type != "mig" || strings.Contains(g.Profile, "+gfx") {
			maps.Copy(devices, ns.graphics(g))
		}
		for _, library := range []string{"libcuda.so." + g.DriverVersion, "libnvidia-ml.so." + g.DriverVersion} {
			assert.Contains(ns.t, v.libraries, library)
		}
	}
	assert.Contains(ns.t, devices, "/dev/nvidiactl")
	assert.Contains(ns.t, devices, "/dev/nvidia-uvm")
	assert.Equal(ns.t, devices, v.devices, "device nodes in %s/%s", pod, container)
	for path, n := range v.devices {
		assert.NoError(ns.t, ns.isLinked(n), "%s in %s/%s", path, pod, container)
	}
	for _, library := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		assert.Contains(ns.t, v.libraries, library)
	}
	for library, fixed := range v.libraries {
		assert.Truef(ns.t, fixed, "%s can be written to in %s/%s", library, pod, container)
	}
	assert.Contains(ns.t, v.variables, "NVIDIA_VISIBLE_DEVICES=void")
}

// isLinked returns an error until the node's /dev/char links to the device with these numbers.
func (c *cluster) isLinked(n numbers) error {
	root, link := c.variable("PRISM_NODE_0_ROOT"), fmt.Sprintf("/dev/char/%d:%d", n.major, n.minor)
	target, err := os.Readlink(root + link)
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Stat(root+target, &stat); err != nil {
		return fmt.Errorf("following %s to %s: %w", link, target, err)
	}
	if found := (numbers{unix.Major(stat.Rdev), unix.Minor(stat.Rdev)}); found != n {
		return fmt.Errorf("%s links to %s, which is %v", link, target, found)
	}
	return nil
}

// graphics returns, by path, the node's device nodes with which programs draw on the GPU.
func (ns *namespace) graphics(g grant) map[string]numbers {
	ns.t.Helper()
	boards, err := ns.boards()
	require.NoError(ns.t, err)
	require.Contains(ns.t, boards, g.gpu())
	ordinal := uint32(boards[g.gpu()].Ordinal)
	return map[string]numbers{fmt.Sprintf("/dev/dri/card%d", ordinal+1): {226, ordinal + 1}, fmt.Sprintf("/dev/dri/renderD%d", ordinal+128): {226, ordinal + 128}}
}

// hardwareOf returns the GPUs of devices, each once, and the MIG devices.
func hardwareOf(grants []grant) (gpus, migs []string) {
	for i := range grants {
		g := &grants[i]
		if g.Type == "mig" {
			migs = append(migs, g.UUID)
		}
		if !slices.Contains(gpus, g.gpu()) {
			gpus = append(gpus, g.gpu())
		}
	}
	return gpus, migs
}

var gpuNode = regexp.MustCompile(`^/dev/nvidia\d+$`)

// seesNothing checks that the container contains no GPU resources.
func (ns *namespace) seesNothing(pod, container string) {
	ns.t.Helper()
	v := ns.inspect(pod, container)
	assert.Equal(ns.t, view{devices: map[string]numbers{}, libraries: map[string]bool{}}, v, "GPU resources of %s/%s", pod, container)
}
