package plan

import (
	"path"
	"path/filepath"
	"strings"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Source names the profile in errors about CDI edits.
const Source = "the profile"

// Host contains the paths of the node for containers; they are paths of the host.
type Host struct {
	// Node is the name of the node.
	Node string
	// Programs is the directory of libprism-inject.so and prism-run.
	Programs string
	// Plan and Inbox are directories of the claim: its containers read the plan, and write reports to the inbox.
	Plan, Inbox string
	// Hook returns the CDI edit with which the runtime starts prism-hook with these arguments once the mounts are complete.
	Hook func(args ...string) *specs.Hook
	// StartTimeout is the maximum time that a process waits for the start of the profiler; 0 is the default.
	StartTimeout time.Duration
	// ReportTimeout is the maximum time for the profiler to write a report after recording has ended; 0 is the default.
	ReportTimeout time.Duration
}

// temporary is the source of the container's own file system.
const temporary = "tmpfs"

// hookSeconds limits the hook, which gives up by itself before: otherwise a runtime waits for a hook without limit.
const hookSeconds = 30

// Edits returns the edits of the first profiled device of each request: a container uses all devices of a request or none, and a runtime
// would start the hook for each of them. A container with several requests gets them several times; the runtime keeps one mount and each
// hook.
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

// toolMounts mounts the part of the tool that records and, if reports stay in containers, the part that imports.
func toolMounts(c *v1alpha1.ProfilerConfig, tool Tool, options []string) []*specs.Mount {
	mount := func(part, at string) *specs.Mount {
		return &specs.Mount{HostPath: filepath.Join(tool.Dir, part), ContainerPath: path.Join(containerTool, at), Options: options}
	}
	part := filepath.Dir(tool.Nsys)
	all := []*specs.Mount{mount(part, part)}
	if *c.Output.Type == v1alpha1.OutputContainerPath && tool.Importer != "" {
		// Next to the other part, as in an installation.
		all = append(all, mount(tool.Importer, path.Join(path.Dir(part), filepath.Base(tool.Importer))))
	}
	return all
}
