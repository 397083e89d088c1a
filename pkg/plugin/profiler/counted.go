package profiler

import (
	"context"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/counting"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

// NewCounting returns the extension for claims whose performance counters are recorded, for the result of Open with the same options. It exists
// on every node, so that records of such claims can be undone.
func NewCounting(ctx context.Context, o Options, profiles extension.Extension) *counting.Extension {
	cfg := o.Config
	of := counting.Options{
		Files: o.Files, Dir: cfg.CollectorDir(), NodeName: cfg.NodeName, StartTimeout: cfg.Profiler.StartTimeout,
		ReportTimeout: cfg.Profiler.ReportTimeout,
	}
	if p, on := profiles.(*Extension); on {
		of.Enabled, of.Config, of.Changed = cfg.Profiler.Collector, p.decoded.configs.Of, p.followed.change
	}
	return counting.New(ctx, of)
}

// reported reports whether the status of a claim follows its reports.
func reported(r *checkpoint.Record) bool { return plan.Profiled(r) || plan.Counted(r) }

// ensureCounted creates the folders of a claim whose performance counters are recorded, and no processes.
func (p *Extension) ensureCounted(r *checkpoint.Record) error {
	c, err := p.decoded.configs.Of(r)
	if err != nil {
		return err
	}
	var tool plan.Tool
	if c.ToolVersion != nil {
		tool.Tool = nsight.Tool{Version: *c.ToolVersion}
	}
	return p.store.Prepare(plan.Claim(r, c, tool, p.cfg.NodeName), nil)
}

// maxDuration returns the maximum duration of a recording by the cluster's policy; 0 if it sets none, or is not known yet.
func (p *Extension) maxDuration() time.Duration {
	if p.cluster == nil {
		return 0
	}
	known := p.cluster.rules.rules.Load()
	if known == nil || known.Policy.MaxDuration == nil {
		return 0
	}
	return known.Policy.MaxDuration.Duration
}
