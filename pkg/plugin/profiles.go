package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/profiler/plan"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// patternsKept is how many compiled patterns are kept: those of the claims of a node are few.
const patternsKept = 64

// profiles are the plans and the reports of the node's claims. It is nil where no processes are profiled: such a node adds nothing.
type profiles struct {
	cfg     *config.Plugin
	hook    *programs.Profiler
	logger  klog.Logger
	store   *store.Store
	decoded decoded
	// unprofiled are the claims that this process prepared without their profile, as the version of the tool is not installed any more.
	unprofiled sync.Map
	// followed reports claims; nil on a machine without an API.
	followed *followed
}

// decoded is what each Prepare of a claim with a profile needs, and what seldom changes.
type decoded struct {
	patterns *pattern.Cache
	configs  plan.Configs
	// tools are the manifests of what is installed.
	tools *manifest.Cache
}

// openProfiles opens the reports of the node. It changes nothing.
func openProfiles(ctx context.Context, cfg *config.Plugin, a Adapters, hook *programs.Profiler) (*profiles, error) {
	if !cfg.Profiler.Enabled {
		return nil, nil
	}
	p := &profiles{
		cfg: cfg, hook: hook, logger: klog.FromContext(ctx),
		decoded: decoded{patterns: pattern.NewCache(patternsKept), tools: manifest.NewCache(cfg.ToolsDir())},
	}
	if err := a.Disk.MakeDir(cfg.Paths.StateDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the state directory %s: %w", cfg.Paths.StateDir, err)
	}
	if err := a.Disk.MakeDir(cfg.ProfilesDir(), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of profiles %s: %w", cfg.ProfilesDir(), err)
	}
	return p, openStore(p, a)
}

// openLeft opens the reports of a node whose processes are not profiled any more: they end with their retention or with their namespace. It
// returns nil where there are none.
func openLeft(ctx context.Context, cfg *config.Plugin, a Adapters) (*profiles, error) {
	switch left, err := a.Disk.List(cfg.ProfilesDir()); {
	case cfg.Profiler.Enabled || errors.Is(err, fs.ErrNotExist) || err == nil && len(left) == 0:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the profiles of the node: %w", err)
	}
	p := &profiles{cfg: cfg, logger: klog.FromContext(ctx)}
	return p, openStore(p, a)
}

func openStore(p *profiles, a Adapters) (err error) {
	incomplete := newIncompleteLog(p.logger)
	p.store, err = store.Open(store.Options{
		Dir: p.cfg.ProfilesDir(), Files: a.Disk, Now: a.Now, NodeBytes: p.cfg.Profiler.NodeBytes.Value(), Imports: p.cfg.Profiler.Enabled, Follow: true,
		Changed: func(r report.Report) {
			incomplete.log(r)
			p.followed.change(r.ClaimUID)
		},
		Evicted: func(r report.Report) {
			logEvicted(p.logger, r)
			p.followed.change(r.ClaimUID)
		},
		Failed: func(claimUID string, err error) {
			p.logger.Error(err, "Reports of a claim are not stored yet", "claimUID", claimUID)
		},
	})
	return err
}

// logRate is how many incomplete reports are logged in a second, logBurst how many at once: containers make as many as they like.
const logRate, logBurst = 1, 100

// incompleteLog logs why reports cannot be read as others can.
type incompleteLog struct {
	logger klog.Logger
	rate   flowcontrol.PassiveRateLimiter
	// left is how many were not logged since the last one that was.
	left atomic.Int64
}

func newIncompleteLog(logger klog.Logger) *incompleteLog {
	return &incompleteLog{logger: logger, rate: flowcontrol.NewTokenBucketPassiveRateLimiter(logRate, logBurst)}
}

func (l *incompleteLog) log(r report.Report) {
	if r.State != report.Lost && r.State != report.Raw {
		return
	}
	if !l.rate.TryAccept() {
		l.left.Add(1)
		return
	}
	l.logger.Info("A report is not complete", "claim", klog.KRef(r.Namespace, r.Claim), "report", r.ID, "state", r.State, "reason", r.Reason,
		"message", r.Message, "pod", r.Pod, "container", r.Container, "process", r.Process, "notLogged", l.left.Swap(0))
}

// logEvicted logs which report made room for those of another namespace.
func logEvicted(logger klog.Logger, r report.Report) {
	logger.Info("Report deleted, because another namespace has less than its share of the node", "claim", klog.KRef(r.Namespace, r.Claim),
		"report", r.ID, "size", r.Size, "ended", r.Ended, "pod", r.Pod)
}

// of is how a claim is profiled, with the tool that is installed for it and what the node has for it.
func (p *profiles) of(r *checkpoint.Record) (c *v1alpha1.ProfilerConfig, tool plan.Tool, host plan.Host, err error) {
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

// toolMissing is why a claim that was prepared before has no version of the tool any more: it may be installed again.
type toolMissing struct{ cause error }

func (e *toolMissing) Error() string   { return e.cause.Error() }
func (e *toolMissing) Unwrap() []error { return []error{e.cause, gpu.ErrNotFound} }

// without reports whether the claim's containers start without the profile for that reason: after a reboot, the version that a claim was
// prepared with may have been replaced.
func without(c *v1alpha1.ProfilerConfig, err error) bool {
	_, missing := errors.AsType[*toolMissing](err)
	return missing && *c.FailurePolicy != v1alpha1.FailClosed
}

// edits are those of a record's devices.
func (p *profiles) edits(r *checkpoint.Record) ([]cdi.DeviceEdits, error) {
	if p == nil || !plan.Profiled(r) {
		return nil, nil
	}
	c, tool, host, err := p.of(r)
	// A spec that is there stays as it is.
	if without(c, err) && p.hook.Version(r.Claim.UID) == "" {
		return nil, nil
	}
	if err != nil {
		first := slices.IndexFunc(r.Results, func(result checkpoint.Result) bool { return result.Profiled })
		return nil, &cdi.DeviceError{Device: r.CDI.Devices[first], Edit: true, Err: fmt.Errorf("CDI edits of %s: %w", plan.Source, err)}
	}
	return plan.Edits(r, c, tool, host), nil
}

// exists is what reports whether something of the host that is added to devices exists. The folders of a claim are made with its spec.
func (p *profiles) exists(of func(path string) error) func(path string) error {
	if p == nil {
		return of
	}
	return func(path string) error {
		if filepath.Dir(filepath.Dir(path)) == p.cfg.ProfilesDir() {
			return nil
		}
		return of(path)
	}
}

// ensure makes the plan of a claim; what is there and the same is left alone.
func (p *profiles) ensure(r *checkpoint.Record) error {
	if p == nil || !plan.Profiled(r) {
		return nil
	}
	c, tool, host, err := p.of(r)
	if without(c, err) {
		p.unprofiled.Store(r.Claim.UID, nil)
		p.logger.Error(err, "A claim is prepared without its profile", "claim", klog.KRef(r.Claim.Namespace, r.Claim.Name), "claimUID", r.Claim.UID)
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

// withoutTool reports whether a claim was prepared without its profile. The specs that an earlier process wrote have the answer.
func (p *profiles) withoutTool(claimUID string) bool {
	if _, unprofiled := p.unprofiled.Load(claimUID); unprofiled {
		return true
	}
	if p.hook.Current(claimUID) {
		return false
	}
	named, err := p.hook.Named(claimUID, p.store.Folders(claimUID).Plan)
	return err == nil && !named
}

// release says that a claim's containers are gone. A claim is unprepared whatever becomes of its reports.
func (p *profiles) release(claimUID string) {
	if p == nil {
		return
	}
	p.reportIncomplete(claimUID)
	p.hook.Removed(claimUID)
	unfollow(p.followed, claimUID)
	p.unprofiled.Delete(claimUID)
	if err := p.store.Release(claimUID); err != nil {
		p.logger.Error(err, "The reports of a claim are stored later", "claimUID", claimUID)
	}
}

// claimFiles are what the kubelet and containers read of claims.
type claimFiles struct {
	*cdi.SpecBuilder
	cdi.Files
	profiles *profiles
	links    *charLinks
}

// Write makes what the spec mounts and the links to its device nodes, and puts the spec in place.
func (f claimFiles) Write(r *checkpoint.Record, spec *specs.Spec) error {
	f.links.of(spec)
	if err := f.profiles.ensure(r); err != nil {
		return err
	}
	err := f.Files.Write(r.Claim.UID, spec)
	if err == nil && f.profiles != nil && plan.Profiled(r) {
		f.profiles.hook.Wrote(r.Claim.UID)
	}
	return err
}

// Remove removes the claim's spec, and what it mounts besides its reports.
func (f claimFiles) Remove(claimUID string) error {
	f.profiles.release(claimUID)
	return f.Files.Remove(claimUID)
}
