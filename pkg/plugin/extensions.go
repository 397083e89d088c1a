package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/claimmetrics"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
)

// extensionPrograms are the names of the programs that extensions install on the host.
var extensionPrograms = profiler.Programs

// newExtensions returns the plugin's extensions, in the order in which they edit containers. A new extension needs a line here.
func newExtensions(ctx context.Context, m *Machine) (prepare.Extensions, error) {
	profiling := profiler.Options{Config: m.cfg, Files: m.adapters.Disk, Now: m.adapters.Now, Programs: m.programs}
	profiles, err := profiler.Open(ctx, profiling)
	return append(prepare.Extensions{
		metadataSpecs{m.cfg, m.State.former},
		newMPS(m),
		profiles,
		profiler.NewCounting(ctx, profiling, profiles), // after the profiler, which makes the folders of claims
		m.memoryEdits(),
		claimmetrics.Extension{Disk: m.adapters.Disk, Dir: m.cfg.MetricsDir(), Exporter: m.cfg.Exporter, NodeName: m.cfg.NodeName},
	}, m.adapters.Extensions...), err
}

// whileIdle is the work of extensions on a node without a GPU, until the context ends.
func whileIdle(ctx context.Context, cfg *config.Plugin, a Adapters) error {
	return profiler.ServeIdle(ctx, profiler.Options{Config: cfg, Files: a.Disk, Now: a.Now})
}

// Services are the services of the node that built-in extensions call.
type Services struct {
	// MPS returns the MPS service at that socket; nil for a machine without one.
	MPS func(socket string) mps.Daemons
}

// services returns the services of a real node.
func services() Services {
	return Services{MPS: func(socket string) mps.Daemons { return client.New(socket) }}
}

// newMPS returns the extension for claims that use devices with MPS.
func newMPS(m *Machine) extension.Extension {
	host, run := m.adapters.Host, m.cfg.RunDir()
	o := mps.Options{
		Store: mps.StoreOptions{Files: m.adapters.Disk, Dir: m.cfg.PluginDir(), BootID: m.State.BootID}, Dir: filepath.Join(run, "mps"),
		Modes: m.Inventory.ComputeModes, MIG: m.Inventory.MIGDriver, Load: host.DriverLoad,
		Hook: mps.HookOptions{Command: m.programs.CreateRuntime, Socket: m.cfg.HookSocket()},
		Process: func(pid int) (started uint64, runs bool) {
			p, runs := host.Process(pid)
			return p.Start, runs
		},
	}
	if m.adapters.Services.MPS != nil {
		o.Daemons = m.adapters.Services.MPS(filepath.Join(run, "mpsd.sock"))
	}
	return mps.New(o)
}

// statusExtensions are the extensions that write to the status of claims.
func statusExtensions(all prepare.Extensions) (parts []driver.StatusExtension) {
	for _, e := range all {
		if part, ok := e.(driver.StatusExtension); ok {
			parts = append(parts, part)
		}
	}
	// Not in the order of edits: readers of statuses see the same order whatever is added to containers first.
	slices.SortFunc(parts, func(a, b driver.StatusExtension) int { return strings.Compare(a.Kind(), b.Kind()) })
	return parts
}

// conditionTypes are the types of the conditions that some devices have.
func conditionTypes(all prepare.Extensions) []string {
	types := []string{programs.ConditionInjected, driver.ConditionHealthy}
	for _, e := range statusExtensions(all) {
		types = append(types, e.ConditionTypes()...)
	}
	return types
}

// renewed returns the function to call whenever the advertised devices may have changed.
func renewed(all prepare.Extensions, healths *healthReports) func() {
	return func() {
		healths.renewed()
		for _, e := range extension.All[extension.Attacher](all) {
			e.Renewed()
		}
	}
}

// gone returns the function to call for a claim that was deleted, or is not prepared any more.
func gone(all prepare.Extensions) func(claimUID string) {
	followers := extension.All[extension.Follower](all)
	return func(claimUID string) {
		for _, f := range followers {
			f.Gone(claimUID)
		}
	}
}

// planner plans claims with the extensions, within the time of the call that it does so for.
type planner struct {
	claim.Source
	extensions []extension.Planner
}

// Resolve implements prepare.Planner. If the caller has gone, it fails, because extensions may not have read everything for the claim.
func (p planner) Resolve(ctx context.Context, rc *resourceapi.ResourceClaim) (*claim.Plan, error) {
	for _, e := range p.extensions {
		p.Extensions = append(p.Extensions, e.Claim(ctx))
	}
	plan, err := p.Source.Resolve(rc)
	if err == nil && ctx.Err() != nil {
		return nil, fmt.Errorf("planning the claim: %w", ctx.Err())
	}
	return plan, err
}

// claimSpecs are the CDI specs of claims.
type claimSpecs struct {
	*cdi.SpecBuilder
	*cdi.Dir
	metadata metadataSpecs
	links    *charLinks
}

// Claims also lists claims of which only the spec of a metadata file exists: the kubelet-plugin library writes these specs after a claim
// was prepared, and removes them only if the kubelet unprepares the claim.
func (s claimSpecs) Claims() ([]string, error) { return s.ClaimsAnd(s.metadata.claim) }

// Write makes the links to the spec's device nodes, and puts the spec in place.
func (s claimSpecs) Write(r *checkpoint.Record, spec *specs.Spec) error {
	s.links.of(spec)
	return s.Dir.Write(r.Claim.UID, spec)
}
