// Package plan plans the contents of the containers of a profiled claim: the files that programs in them read, and the mounts and the hook
// of their devices. Everything is derived from the claim's record: equal records result in equal plans.
package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/processmatch"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// Tool is an installed version of the profiler.
type Tool struct {
	nsight.Tool
	// Dir is the host's directory of the version, Nsys the path of its nsys in there, and Importer the path of the importer's directory;
	// empty: there is none.
	Dir, Nsys, Importer string
	// Proven is the time of its test on this node, which recorded and imported a process.
	Proven time.Time
	// Manual is why the test found that it cannot record processes that wait for a command; empty: it can.
	Manual string
}

// Patterns compiles patterns, usually a *pattern.Cache.
type Patterns interface {
	Compile(text string, dialect pattern.Dialect) (*pattern.Table, error)
}

// Kind is the kind of the extension whose data in a record is the profile.
const Kind = "profile"

// KindCounters is the kind of the extension whose data in a record is performance counters.
const KindCounters = "counters"

// The files of a plan.
const (
	// MatchFile selects processes; its content changes when a claim is armed or disarmed.
	MatchFile = "match"
	runFile   = "run"
)

// containerTool is the directory of the tool in containers.
const containerTool = "/run/prism/tool"

// Profiled reports whether processes of the claim are profiled.
func Profiled(r *checkpoint.Record) bool {
	return r.Extensions.Has(Kind) && slices.ContainsFunc(r.Results, func(result checkpoint.Result) bool { return profiled(&result) })
}

// Counted reports whether the performance counters of the claim's GPUs are recorded.
func Counted(r *checkpoint.Record) bool { return r.Extensions.Has(KindCounters) }

// profiled reports whether processes of containers with the result are profiled.
func profiled(r *checkpoint.Result) bool { return r.Extensions.Has(Kind) }

// Config returns the profile of a claim: a configuration with every default.
func Config(r *checkpoint.Record) (*v1alpha1.ProfilerConfig, error) {
	var config v1alpha1.ProfilerConfig
	if err := json.Unmarshal(r.Extensions[Kind], &config); err != nil {
		return nil, fmt.Errorf("reading the profile in the record of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	config.Default() // for fields that the writer's version did not know
	return &config, nil
}

// Configs caches the decoded configuration while the same one is requested: a Prepare needs it three times, and claims from one template
// use the same configuration. The zero value is ready for use. It is safe for concurrent use.
type Configs struct {
	mu     sync.Mutex
	raw    []byte
	config *v1alpha1.ProfilerConfig
}

// Of returns the same as Config. Callers must not change the result.
func (c *Configs) Of(r *checkpoint.Record) (*v1alpha1.ProfilerConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw := r.Extensions[Kind]
	if c.config != nil && bytes.Equal(c.raw, raw) {
		return c.config, nil
	}
	config, err := Config(r)
	if err == nil {
		c.raw, c.config = bytes.Clone(raw), config
	}
	return config, err
}

// DisarmedMatch returns the content of MatchFile for a claim that is not armed: it selects no process.
func DisarmedMatch() ([]byte, error) {
	all, err := pattern.Compile("", pattern.RE2)
	if err != nil {
		return nil, fmt.Errorf("compiling the pattern of all processes: %w", err)
	}
	return pattern.Rules{Target: pattern.Argv0, Excludes: []*pattern.Table{all}}.Encode()
}

// Match returns the content of MatchFile for a claim that is armed.
func Match(config *v1alpha1.ProfilerConfig, patterns Patterns) ([]byte, error) {
	rules, err := processmatch.Rules(config.Match, patterns.Compile)
	if err != nil {
		return nil, err
	}
	return rules.Encode()
}

// Files returns the files of a claim's plan on a host, by name. The store replaces MatchFile of a claim that is not armed.
func Files(r *checkpoint.Record, config *v1alpha1.ProfilerConfig, tool Tool, host Host, patterns Patterns) (map[string][]byte, error) {
	fail := func(err error) (map[string][]byte, error) {
		return nil, fmt.Errorf("creating the profile of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	match, err := Match(config, patterns)
	if err != nil {
		return fail(err)
	}
	of, err := runPlan(r, config, tool, host)
	if err != nil {
		return fail(err)
	}
	run, err := of.Encode()
	if err != nil {
		return fail(err)
	}
	return map[string][]byte{MatchFile: match, runFile: run}, nil
}

// runPlan returns the instructions for prism-run.
func runPlan(r *checkpoint.Record, c *v1alpha1.ProfilerConfig, tool Tool, host Host) (p runplan.Plan, err error) {
	p = runplan.Plan{
		Claim: r.Claim.UID, Namespace: r.Claim.Namespace, ClaimName: r.Claim.Name, Node: host.Node,
		Tool: containerTool + "/" + tool.Nsys, File: *c.Output.FileName, MaxSessions: int(*c.Match.MaxSessions), Ready: host.StartTimeout,
		Report: host.ReportTimeout, ExecSessions: *c.Match.IncludeExecSessions, FailClosed: *c.FailurePolicy == v1alpha1.FailClosed,
	}
	if *c.Output.Type == v1alpha1.OutputContainerPath {
		p.Dir = *c.Output.Path
	}
	software := false
	for i := range r.Results {
		result := &r.Results[i]
		if !profiled(result) {
			continue
		}
		software = software || result.MIG != nil || result.ThroughServer()
		if p.GPU == "" {
			p.GPU = uuid(result)
		}
	}
	commands, err := nsight.Arguments(c, tool.Tool, software)
	p.Switches, p.Manual, p.StartSwitches = commands.Run, c.Manual(), commands.Start
	return p, err
}

// uuid returns the UUID of the device.
func uuid(r *checkpoint.Result) string {
	if r.MIG != nil {
		return string(r.MIG.Identity.UUID)
	}
	return string(r.GPUUUID)
}

// Claim returns how the claim's reports are stored.
func Claim(r *checkpoint.Record, c *v1alpha1.ProfilerConfig, tool Tool, node string) store.Claim {
	dir := runplan.Results
	if *c.Output.Type == v1alpha1.OutputContainerPath {
		dir = *c.Output.Path
	}
	return store.Claim{
		UID: r.Claim.UID, Namespace: r.Claim.Namespace, Name: r.Claim.Name, Node: node, Tool: tool.Version,
		MaxBytes: c.Output.MaxBytes.Value(), Retention: c.Output.Retention.Duration, Dir: dir, ByHand: byHand(c),
		Counters: Counted(r),
	}
}
