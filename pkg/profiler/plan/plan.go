// Package plan says what the containers of a profiled claim get: the files that programs in them read, and the mounts and the hook of their
// devices. All of it is made from the claim's record: equal records have equal plans.
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
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/store"
)

// Tool is an installed version of the profiler.
type Tool struct {
	nsight.Tool
	// Dir is the host's directory of the version, Nsys the path of its nsys in there, and Importer that of the importer's directory; empty: there
	// is none.
	Dir, Nsys, Importer string
	// Proven is when it recorded and imported on this node.
	Proven time.Time
}

// Patterns compiles patterns; *pattern.Cache is the real one.
type Patterns interface {
	Compile(text string, dialect pattern.Dialect) (*pattern.Table, error)
}

// Kind is that of the extension whose data in a record is the profile; mpsKind is that of the extension of devices that are used with MPS.
const Kind, mpsKind = "profile", "mps"

// The files of a plan.
const (
	matchFile = "match"
	runFile   = "run"
)

// containerTool is where containers have the tool.
const containerTool = "/run/prism/tool"

// Profiled reports whether processes of the claim are profiled.
func Profiled(r *checkpoint.Record) bool {
	return r.Extensions.Has(Kind) && slices.ContainsFunc(r.Results, func(result checkpoint.Result) bool { return profiled(&result) })
}

// profiled reports whether processes of containers that have the result are profiled.
func profiled(r *checkpoint.Result) bool { return r.Extensions.Has(Kind) }

// Config is how the processes of a claim are profiled: a configuration with every default.
func Config(r *checkpoint.Record) (*v1alpha1.ProfilerConfig, error) {
	var config v1alpha1.ProfilerConfig
	if err := json.Unmarshal(r.Extensions[Kind], &config); err != nil {
		return nil, fmt.Errorf("reading the profile in the record of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	config.Default() // a field that this version has and the writer did not
	return &config, nil
}

// Configs decodes a configuration once while the same one is asked for: a Prepare needs it three times, and claims from one template have the
// same. The zero value is ready. It can be used concurrently.
type Configs struct {
	mu     sync.Mutex
	raw    []byte
	config *v1alpha1.ProfilerConfig
}

// Of is Config. No caller may change the result.
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

// Files are the plan of a claim on a host, by name.
func Files(r *checkpoint.Record, config *v1alpha1.ProfilerConfig, tool Tool, host Host, patterns Patterns) (map[string][]byte, error) {
	fail := func(err error) (map[string][]byte, error) {
		return nil, fmt.Errorf("creating the profile of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	rules, err := rules(config.Match, patterns)
	if err != nil {
		return fail(err)
	}
	match, err := rules.Encode()
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
	return map[string][]byte{matchFile: match, runFile: run}, nil
}

// rules select the processes.
func rules(m *v1alpha1.ProcessMatch, patterns Patterns) (rules pattern.Rules, err error) {
	dialect := pattern.Perl
	if *m.Dialect == v1alpha1.DialectRE2 {
		dialect = pattern.RE2
	}
	switch *m.Target {
	case v1alpha1.TargetCommandLine:
		rules.Target = pattern.CommandLine
	case v1alpha1.TargetExecutable:
		rules.Target = pattern.Executable
	case v1alpha1.TargetArgv0:
		rules.Target = pattern.Argv0
	}
	if *m.Regex != "" {
		if rules.Include, err = patterns.Compile(*m.Regex, dialect); err != nil {
			return rules, fmt.Errorf("match.regex: %w", err)
		}
	}
	for i, exclude := range m.Exclude {
		table, err := patterns.Compile(exclude, dialect)
		if err != nil {
			return rules, fmt.Errorf("match.exclude[%d]: %w", i, err)
		}
		rules.Excludes = append(rules.Excludes, table)
	}
	if *m.UseDefaultExcludes {
		rules.Names = v1alpha1.DefaultExcludes
	}
	return rules, nil
}

// runPlan is what prism-run does with a process.
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
		software = software || result.MIG != nil || result.Extensions.Has(mpsKind)
		if p.GPU == "" {
			p.GPU = uuid(result)
		}
	}
	p.Switches, err = nsight.Arguments(c, tool.Tool, software)
	return p, err
}

// uuid is that of the device.
func uuid(r *checkpoint.Result) string {
	if r.MIG != nil {
		return string(r.MIG.Identity.UUID)
	}
	return string(r.GPUUUID)
}

// Claim is how the claim's reports are kept.
func Claim(r *checkpoint.Record, c *v1alpha1.ProfilerConfig, tool Tool, node string) store.Claim {
	dir := runplan.Results
	if *c.Output.Type == v1alpha1.OutputContainerPath {
		dir = *c.Output.Path
	}
	return store.Claim{
		UID: r.Claim.UID, Namespace: r.Claim.Namespace, Name: r.Claim.Name, Node: node, Tool: tool.Version,
		MaxBytes: c.Output.MaxBytes.Value(), Retention: c.Output.Retention.Duration, Dir: dir,
	}
}
