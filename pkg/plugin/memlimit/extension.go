package memlimit

import (
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Extension makes the runtime ask for limits.
type Extension struct {
	// Supported reports whether the memory of containers can be limited on a GPU now.
	Supported func(id gpu.UUID) bool
	// Hook is the CDI edit that makes the runtime start prism-hook with these arguments.
	Hook func(args ...string) *specs.Hook
	// Socket is the host's path of the Server's socket.
	Socket string
}

// Kind is "memory". It keeps no data in records.
func (Extension) Kind() string { return "memory" }

// Concerns reports whether the memory of a result may be limited.
func (Extension) Concerns(r *checkpoint.Record) bool {
	return slices.ContainsFunc(r.Results, func(result checkpoint.Result) bool { return result.Type == gpu.TypeTimeSlice })
}

// EditsOf returns the edits of a record's devices: of the time-sliced shares that requested memory, if the node can limit it.
func (e Extension) EditsOf(r *checkpoint.Record) (all []cdi.DeviceEdits, _ error) {
	for i := range r.Results {
		// Memory that cannot be read is left to the Server, which refuses it.
		if memory, err := limitOf(&r.Results[i]); err == nil && memory == 0 || !e.Supported(r.Results[i].GPUUUID) {
			continue
		}
		hook := e.Hook("memory-limit", "--socket", e.Socket, "--claim", r.Claim.UID, "--device", r.CDI.Devices[i])
		all = append(all, cdi.DeviceEdits{Device: r.CDI.Devices[i], Source: "the memory limit", Edits: cdi.Edits{Hooks: []*specs.Hook{hook}}})
	}
	return all, nil
}

// limitOf is the memory limit of a result's containers, in bytes; 0 means no limit.
func limitOf(r *checkpoint.Result) (int64, error) {
	if r.Type != gpu.TypeTimeSlice || r.Admin {
		return 0, nil
	}
	memory, err := claim.ConsumedMemory(r.Consumed)
	return max(memory, 0), err
}
