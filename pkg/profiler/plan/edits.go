package plan

import (
	"path"
	"path/filepath"
	"strings"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// Source names the profile in errors about CDI edits.
const Source = "the profile"

// Host is what containers get of the node; paths are the host's.
type Host struct {
	// Node is its name.
	Node string
	// Programs has libprism-inject.so and prism-run.
	Programs string
	// Plan and Inbox are the claim's: what its containers read, and where they write reports.
	Plan, Inbox string
	// Hook is the CDI edit that has the runtime start prism-hook with these arguments once the mounts are there.
	Hook func(args ...string) *specs.Hook
	// StartTimeout is how long a process waits until the profiler has started beside it; 0 is the default.
	StartTimeout time.Duration
	// ReportTimeout is how long the profiler may take to write a report after recording has ended; 0 is the default.
	ReportTimeout time.Duration
}

// temporary is the source of the container's own file system.
const temporary = "tmpfs"

// hookSeconds bounds the hook, which gives up by itself before that: a runtime waits for a hook without end otherwise.
const hookSeconds = 30

// Edits are those of the first profiled device of each request: a container has all devices of a request or none, and a runtime would start
// the hook for each of them. A container with several requests has them several times, of which the runtime keeps one mount and each hook.
func Edits(r *checkpoint.Record, c *v1alpha1.ProfilerConfig, tool Tool, host Host) (all []cdi.DeviceEdits) {
	read := []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}
	data := append([]string{"noexec"}, read...)
	bind := func(from, to string, options []string) *specs.Mount {
		return &specs.Mount{HostPath: from, ContainerPath: "/run/prism/" + to, Options: options}
	}
	mounts := append(toolMounts(c, tool, read),
		bind(host.Programs, "programs", read),
		bind(host.Plan, "plan", data),
		bind(host.Inbox, "results", []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"}),
		&specs.Mount{
			HostPath: temporary, ContainerPath: "/run/prism/container", Type: temporary,
			Options: []string{"nosuid", "nodev", "noexec", "mode=0755", "size=256k"},
		})
	args := []string{"profile", "-claim", r.Claim.UID, "-node", host.Node, "-inbox", host.Inbox}
	if len(c.Containers) > 0 {
		args = append(args, "-containers", strings.Join(c.Containers, ","))
	}
	if *c.FailurePolicy == v1alpha1.FailClosed {
		args = append(args, "-fail-closed")
	}
	hook := host.Hook(args...)
	hook.Timeout = new(hookSeconds)
	requests := map[string]bool{}
	for i := range r.Results {
		result := &r.Results[i]
		if !profiled(result) || requests[result.Request] {
			continue
		}
		requests[result.Request] = true
		all = append(all, cdi.DeviceEdits{Device: r.CDI.Devices[i], Source: Source, Edits: cdi.Edits{
			Mounts: mounts, Hooks: []*specs.Hook{hook},
		}})
	}
	return all
}

// toolMounts are the part of the tool that records and, where containers keep their reports, the part that imports.
func toolMounts(c *v1alpha1.ProfilerConfig, tool Tool, options []string) []*specs.Mount {
	mount := func(part, at string) *specs.Mount {
		return &specs.Mount{HostPath: filepath.Join(tool.Dir, part), ContainerPath: path.Join(containerTool, at), Options: options}
	}
	part := filepath.Dir(tool.Nsys)
	all := []*specs.Mount{mount(part, part)}
	if *c.Output.Type == v1alpha1.OutputContainerPath && tool.Importer != "" {
		// Beside the other part, as in an installation.
		all = append(all, mount(tool.Importer, path.Join(path.Dir(part), filepath.Base(tool.Importer))))
	}
	return all
}
