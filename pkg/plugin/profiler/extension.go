package profiler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/sessions"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// patternsKept is the number of cached compiled patterns: the claims of a node use few.
const patternsKept = 64

// Options are the settings of an Extension.
type Options struct {
	Config *config.Plugin
	Files  disk.Files
	Now    func() time.Time
	// Programs are the node's programs; they must allow the names of this package's Programs. Open installs these.
	Programs *programs.Set
}

// Extension profiles the processes of claims: it stores the plans and the reports of the node's claims.
type Extension struct {
	cfg     *config.Plugin
	hook    *containerPrograms
	logger  klog.Logger
	now     func() time.Time
	store   *store.Store
	decoded decoded
	// unprofiled are the claims that this process prepared without their profile, because the version of the tool is no longer installed.
	unprofiled sync.Map
	followed   *followed
	cluster    *cluster
	// sessions are the processes that are recorded by hand; nil on a node without the profiler.
	sessions *sessions.Store
}

// cluster contains the state of the cluster, once it is connected.
type cluster struct {
	rules   *profiling
	reports store.Cluster
	records func() ([]*checkpoint.Record, error)
}

// decoded caches data that each Prepare of a claim with a profile needs, and that rarely changes.
type decoded struct {
	patterns *pattern.Cache
	configs  plan.Configs
	// tools are the manifests of the installed versions.
	tools *manifest.Cache
}

// Open opens the reports of the node, without changes to them. It returns an Off on a node without the profiler.
func Open(ctx context.Context, o Options) (extension.Extension, error) {
	cfg := o.Config
	if !cfg.Profiler.Enabled {
		return &Off{options: o}, nil
	}
	p := &Extension{
		cfg: cfg, hook: &containerPrograms{Extra: o.Programs.Extra(Programs...)}, logger: klog.FromContext(ctx), now: o.Now, followed: newFollowed(),
		decoded: decoded{patterns: pattern.NewCache(patternsKept), tools: manifest.NewCache(cfg.ToolsDir())},
	}
	if err := p.hook.Err(); err != nil {
		p.logger.Error(err, "Processes are not profiled without the profiler's programs")
	}
	if err := o.Files.MakeDir(cfg.Paths.StateDir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the state directory %s: %w", cfg.Paths.StateDir, err)
	}
	if err := o.Files.MakeDir(cfg.ProfilesDir(), 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory of profiles %s: %w", cfg.ProfilesDir(), err)
	}
	err := p.openStore(o)
	p.openSessions(o)
	return p, err
}

// Kind is claim.KindProfile.
func (*Extension) Kind() string { return claim.KindProfile }

// Reports returns the reports of the node's profiled processes.
func (p *Extension) Reports() *store.Store { return p.store }

// Sessions returns the node's processes that are recorded by hand.
func (p *Extension) Sessions() *sessions.Store { return p.sessions }

// Connect reads the rules of the cluster once, if that is quick.
func (p *Extension) Connect(ctx context.Context, api extension.Connection) {
	p.cluster = &cluster{
		rules: p.newProfiling(ctx, api.Claims), reports: newReportsCluster(p.cfg, api.Background, klog.FromContext(ctx)), records: api.Records,
	}
	p.followed.events = api.ClaimEvents
}

// Claim returns the extension that plans profiles within the time of one call.
func (p *Extension) Claim(ctx context.Context) claim.PlanExtension {
	planned := claim.ProfileExtension{NodeName: p.cfg.NodeName}
	if p.cluster != nil {
		planned.Profiler = profilingCall{p.cluster.rules, ctx}
	}
	return planned
}

// Run follows the rules, reports changes of profiles and serves reports until the context ends.
func (p *Extension) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{p.cluster.rules.watch, p.followed.run, p.serve} {
		parts.Go(func() error { return run(ctx) })
	}
	return parts.Wait()
}

// Withdraw announces to controllers that the node stores no reports under a former driver name.
func (p *Extension) Withdraw(ctx context.Context, former *config.Plugin, client kubernetes.Interface) error {
	return newReportsCluster(former, client, klog.FromContext(ctx)).Announce(ctx, false)
}

func (p *Extension) openStore(o Options) (err error) {
	incomplete := newIncompleteLog(p.logger)
	disarmed, err := plan.DisarmedMatch()
	if err != nil {
		return err
	}
	p.store, err = store.Open(store.Options{
		Dir: p.cfg.ProfilesDir(), Files: o.Files, Now: o.Now, NodeBytes: p.cfg.Profiler.NodeBytes.Value(), Imports: p.cfg.Profiler.Enabled, Follow: true,
		Disarmed: disarmed, Collector: p.cfg.CollectorDir(),
		Changed: func(r report.Report) {
			incomplete.log(r)
			p.followed.change(r.ClaimUID)
		},
		Evicted: func(r report.Report) {
			logEvicted(p.logger, r)
			p.followed.change(r.ClaimUID)
		},
		Failed: func(claimUID string, err error) {
			p.logger.Error(err, "Storing the reports of a claim failed and will be retried", "claimUID", claimUID)
		},
	})
	return err
}

// of returns the ProfilerConfig of a claim, its installed tool, and its paths on the node.
func (p *Extension) of(r *checkpoint.Record) (c *v1alpha1.ProfilerConfig, tool plan.Tool, host plan.Host, err error) {
	if c, err = p.decoded.configs.Of(r); err != nil {
		return nil, tool, host, err
	}
	if err := p.hook.Err(); err != nil {
		return nil, tool, host, err
	}
	installed, err := installedTools(p.decoded.tools)
	if err != nil {
		return nil, tool, host, err
	}
	wanted := ""
	if c.ToolVersion != nil {
		wanted = *c.ToolVersion
	}
	folders := p.store.Folders(r.Claim.UID)
	host = plan.Host{
		Node: p.cfg.NodeName, Programs: p.hook.Folder(), Plan: folders.Plan, Inbox: folders.Inbox, Hook: p.hook.CreateContainer,
		StartTimeout: p.cfg.Profiler.StartTimeout, ReportTimeout: p.cfg.Profiler.ReportTimeout,
	}
	if tool, err = chooseTool(installed, wanted); err != nil {
		err = &toolMissing{err}
	}
	return c, tool, host, err
}

// toolMissing is the error of a claim that was prepared before, and whose version of the tool is no longer installed: it may be installed
// again.
type toolMissing struct{ cause error }

func (e *toolMissing) Error() string   { return e.cause.Error() }
func (e *toolMissing) Unwrap() []error { return []error{e.cause, gpu.ErrNotFound} }

// without reports whether the claim's containers start without the profile for that reason: after a reboot, the version that a claim was
// prepared with may have been replaced.
func without(c *v1alpha1.ProfilerConfig, err error) bool {
	_, missing := errors.AsType[*toolMissing](err)
	return missing && *c.FailurePolicy != v1alpha1.FailClosed
}

// EditsOf returns the edits of a record's devices.
func (p *Extension) EditsOf(r *checkpoint.Record) ([]cdi.DeviceEdits, error) {
	if !plan.Profiled(r) {
		return nil, nil
	}
	c, tool, host, err := p.of(r)
	// An existing spec stays unchanged.
	if without(c, err) && p.hook.Version(r.Claim.UID) == "" {
		return nil, nil
	}
	if err != nil {
		first := slices.IndexFunc(r.Results, func(result checkpoint.Result) bool { return result.Extensions.Has(claim.KindProfile) })
		return nil, &cdi.DeviceError{Device: r.CDI.Devices[first], Edit: true, Err: fmt.Errorf("CDI edits of %s: %w", plan.Source, err)}
	}
	return plan.Edits(r, c, tool, host), nil
}

// Makes reports whether a path is a folder of a claim.
func (p *Extension) Makes(hostPath string) bool {
	return filepath.Dir(filepath.Dir(hostPath)) == p.cfg.ProfilesDir()
}

// Ensure creates the plan of a claim; equal existing files stay unchanged.
func (p *Extension) Ensure(r *checkpoint.Record) error {
	if !plan.Profiled(r) {
		if plan.Counted(r) {
			return p.ensureCounted(r)
		}
		return nil
	}
	c, tool, host, err := p.of(r)
	if without(c, err) {
		p.unprofiled.Store(r.Claim.UID, nil)
		p.logger.Error(err, "Prepared a claim without its profile", "claim", klog.KRef(r.Claim.Namespace, r.Claim.Name), "claimUID", r.Claim.UID)
		if plan.Counted(r) {
			return p.ensureCounted(r)
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.unprofiled.Delete(r.Claim.UID)
	files, err := plan.Files(r, c, tool, host, p.decoded.patterns)
	if err != nil {
		return err
	}
	return p.store.Prepare(plan.Claim(r, c, tool, p.cfg.NodeName), files)
}

// RemoveFiles removes nothing: the reports of a claim stay until their retention ends.
func (*Extension) RemoveFiles(string) error { return nil }

// Written records the programs that containers of the claim use.
func (p *Extension) Written(r *checkpoint.Record) { p.hook.Wrote(r.Claim.UID) }

// withoutTool reports whether a claim was prepared without its profile. For claims of an earlier process the specs answer that.
func (p *Extension) withoutTool(claimUID string) bool {
	if _, unprofiled := p.unprofiled.Load(claimUID); unprofiled {
		return true
	}
	if p.hook.Current(claimUID) {
		return false
	}
	named, err := p.hook.Named(claimUID, p.store.Folders(claimUID).Plan)
	return err == nil && !named
}

// Released is called when a claim's containers are gone. A claim is unprepared even if storing its reports fails.
func (p *Extension) Released(claimUID string) {
	p.reportIncomplete(claimUID)
	p.hook.Removed(claimUID)
	p.followed.unfollow(claimUID)
	p.unprofiled.Delete(claimUID)
	if err := p.store.Release(claimUID); err != nil {
		p.logger.Error(err, "Storing the reports of an unprepared claim failed and will be retried", "claimUID", claimUID)
	}
}
