package cdi

import "github.com/prism-gpu/prism/pkg/gpu"

// perfmonPrefix begins the name of a variable that names a GPU whose performance counters a container may use. The ID of the GPU ends the
// name: of two variables of the same name a container gets only the last one.
const perfmonPrefix = "PRISM_PERFMON_"

// perfmon is the device that is the right to the performance counters of a GPU. It has no device node: containers get the GPU with another
// device. CDI requires that a device has some edit.
func perfmon(name string, g *gpu.GPU) Device {
	return Device{Name: name, Env: []string{perfmonPrefix + g.ID + "=" + string(g.UUID)}}
}
