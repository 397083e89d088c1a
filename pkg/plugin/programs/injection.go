package programs

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// ConditionInjected is the condition of devices that is False while the container runtime does not apply the CDI specs of claims:
// containers then start without their devices.
const ConditionInjected = "Injected"

// Runtime is the container runtime of the node, usually a cri.Client.
type Runtime interface {
	// Start identifies the current start of the runtime; empty: it is not running.
	Start() string
	// CDIProblem returns the runtime's reason for not applying the CDI specs in a directory; empty: it reports none.
	CDIProblem(ctx context.Context, dir string) (string, error)
	// Started reports whether a container of that name that was created after that time has started.
	Started(ctx context.Context, namespace, pod, container string, after time.Time) (bool, error)
}

const (
	// injectionPause is the time between two checks whether containers receive their devices.
	injectionPause = 10 * time.Second
	// maxChecked limits the containers about which one check asks the runtime.
	maxChecked = 16
)

// Injection detects whether the container runtime applies the CDI specs of claims, once for each start of the runtime: until then, written
// specs contain a hook that creates a file. A runtime without CDI silently starts containers without their devices.
type Injection struct {
	runtime  Runtime // nil: nothing is checked
	programs *Set
	// dir contains the files of the hook, cdiRoot the specs.
	dir, cdiRoot string

	mu sync.Mutex
	// found is the result for the current start of the runtime.
	found finding
}

// finding is the result for a start of the runtime.
type finding struct {
	start string
	// applied: the hook has run. problem: why containers do not receive their devices; empty: unknown.
	applied bool
	problem string
	// warned: the last Event says that containers do not receive their devices. A start of the runtime can end a problem before it is known
	// that specs are applied.
	warned bool
}

// file returns the file that the hook creates in the current start of the runtime; empty: the runtime was not found.
func (i *Injection) file() (file, start string) {
	if i.runtime == nil {
		return "", ""
	}
	if start = i.runtime.Start(); start == "" {
		return "", ""
	}
	return filepath.Join(i.dir, start), start
}

// applied reports whether the hook has run.
func (i *Injection) applied(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// edits adds the hook to the edits of all containers until it has run since the runtime's start, unless specs must not contain hooks. It
// does not change the passed edits.
func (i *Injection) edits(common *specs.ContainerEdits) *specs.ContainerEdits {
	file, _ := i.file()
	if i.programs.nvidia.setting == config.NoCDIHook {
		return common
	}
	if _, err := i.programs.Own(); common == nil || file == "" || err != nil || i.applied(file) || os.MkdirAll(i.dir, 0o700) != nil {
		return common
	}
	with := *common
	with.Hooks = append(slices.Clip(common.Hooks), i.programs.CreateRuntime("injected", "--file", file))
	return &with
}

// Condition returns the condition of a claim whose containers do not receive their devices; otherwise nil.
func (i *Injection) Condition(r *checkpoint.Record) *kube.Condition {
	i.mu.Lock()
	found := i.found
	i.mu.Unlock()
	if found.problem == "" || !i.awaited(r.Claim.UID, found.start) {
		return nil
	}
	return &kube.Condition{Type: ConditionInjected, Reason: "CDINotApplied", Message: found.problem}
}

// awaited reports whether the claim's spec contains the hook of that start.
func (i *Injection) awaited(claimUID, start string) bool {
	named, err := i.programs.specs.Names(claimUID, filepath.Join(i.dir, start))
	return err == nil && named
}

// InjectionReports are the inputs and outputs of a check.
type InjectionReports struct {
	Events events.Recorder
	// Records returns the prepared claims, Uses the containers that use them.
	Records func() ([]*checkpoint.Record, error)
	Uses    func(ctx context.Context) (podresources.Containers, error)
	// Changed reports the status of a claim again.
	Changed func(r *checkpoint.Record)
}

// Run checks until the context ends. Only one process of a node runs it at a time.
func (i *Injection) Run(ctx context.Context, reports InjectionReports) {
	if i.runtime == nil {
		return
	}
	ticker := time.NewTicker(injectionPause)
	defer ticker.Stop()
	for {
		if err := i.Check(ctx, reports); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Checking whether containers receive their devices failed", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Check tries once to find the missing result for the current start of the runtime.
func (i *Injection) Check(ctx context.Context, reports InjectionReports) error {
	file, start := i.file()
	i.mu.Lock()
	was := i.found
	i.mu.Unlock()
	if file == "" || was.start == start && was.applied {
		return nil
	}
	now := finding{start: start, applied: i.applied(file), problem: was.problem}
	var err error
	if was.start != start {
		i.prune(start)
		now.problem, err = i.runtime.CDIProblem(ctx, i.cdiRoot)
		if err != nil && !now.applied {
			return err // asked again
		}
	}
	if !now.applied && now.problem == "" {
		var without bool
		if without, err = i.startedWithout(ctx, start, reports); without && !i.applied(file) {
			now.problem = "a container with a claim started on the node, but the container runtime did not run the hook of the claim's CDI spec: it does " +
				"not apply CDI specs; enable CDI in its configuration, and restart it"
		}
	}
	if now.applied {
		now.problem = ""
	}
	return errors.Join(err, i.report(was, now, reports))
}

// prune removes the files of earlier starts.
func (i *Injection) prune(start string) {
	entries, _ := os.ReadDir(i.dir)
	for _, e := range entries {
		if e.Name() != start {
			_ = os.Remove(filepath.Join(i.dir, e.Name()))
		}
	}
}

// report stores the result, and reports it if it changed.
func (i *Injection) report(was, now finding, reports InjectionReports) error {
	now.warned = now.problem != "" || was.warned && !now.applied
	i.mu.Lock()
	i.found = now
	i.mu.Unlock()
	switch {
	case now.problem != "" && now.problem != was.problem:
		reports.Events.Warn(events.CDIUnavailable, events.ActionPrepare, "Containers do not receive the devices of their claims: "+now.problem)
	case was.warned && !now.warned:
		reports.Events.Normal(events.CDIAvailable, events.ActionPrepare, "Containers receive the devices of their claims again")
	}
	if was.problem == now.problem {
		return nil
	}
	records, err := reports.Records()
	for _, r := range records {
		if r.State == checkpoint.Done && (i.awaited(r.Claim.UID, now.start) || i.awaited(r.Claim.UID, was.start)) {
			reports.Changed(r)
		}
	}
	return err
}

// startedWithout reports whether a container has started with a spec that contains the hook of that start.
func (i *Injection) startedWithout(ctx context.Context, start string, reports InjectionReports) (bool, error) {
	records, err := reports.Records()
	if err != nil {
		return false, err
	}
	written := map[string]time.Time{} // by device
	for _, r := range records {
		if r.State != checkpoint.Done || !i.awaited(r.Claim.UID, start) {
			continue
		}
		info, err := os.Stat(i.programs.specs.File(r.Claim.UID))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, device := range r.CDI.Devices {
			written[device] = info.ModTime()
		}
	}
	if len(written) == 0 {
		return false, nil
	}
	containers, err := reports.Uses(ctx)
	if err != nil {
		return false, err
	}
	checked := 0
	// The random order ensures that a check is not limited to one namespace's containers that do not start.
	for _, n := range rand.Perm(len(containers.Uses)) { //nolint:gosec // an order, no secret
		use := containers.Uses[n]
		at := slices.IndexFunc(use.CDIDevices, func(device string) bool { return !written[device].IsZero() })
		if at < 0 || checked == maxChecked {
			continue
		}
		checked++
		started, err := i.runtime.Started(ctx, use.Namespace, use.Pod, use.Container, written[use.CDIDevices[at]])
		if started || err != nil {
			return started, err
		}
	}
	return false, nil
}
