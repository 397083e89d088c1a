package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/diagnostics"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/mps"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// mpsService is what a machine has of the MPS service of its node.
type mpsService struct {
	*mps.Service
	bootID string
	dir    string // of the host, with those of the daemons
}

// mpsSocket is the socket of the MPS service of a node.
func mpsSocket(cfg *config.Plugin) string { return filepath.Join(cfg.RunDir(), "mpsd.sock") }

// openMPS is the MPS service at its socket.
func openMPS(socket string) mps.Daemons { return client.New(socket) }

// newMPSService builds it; the service is not asked before it is needed.
func newMPSService(cfg *config.Plugin, a Adapters, state State, inv *inventory.Inventory) *mpsService {
	s := &mpsService{bootID: state.BootID, dir: filepath.Join(cfg.RunDir(), "mps")}
	var daemons mps.Daemons = noDaemons{}
	if a.MPS != nil {
		daemons = a.MPS(mpsSocket(cfg))
	}
	store := mps.NewStore(a.Disk, cfg.PluginDir(), state.BootID)
	s.Service = &mps.Service{
		Daemons: daemons, Modes: inv.ComputeModes, Store: store, Load: a.Host.DriverLoad, Counts: &mps.Counts{},
		Process: func(pid int) (started uint64, runs bool) {
			p, runs := a.Host.Process(pid)
			return p.Start, runs
		},
		Watcher: mps.NewWatcher(daemons),
	}
	return s
}

// advertisesMPS reports whether the node advertises MPS shares, and whether that is known.
func advertisesMPS(l Advertised) (advertises, known bool) {
	node, layout, err := l.Now()
	if err != nil {
		return false, false
	}
	for i := range node.GPUs {
		if layout.Of(&node.GPUs[i]).MPS != nil {
			return true, true
		}
	}
	return false, true
}

// watched has the layout's shares be tainted while the service does not answer or can start no control daemon, and not be advertised before it has been asked.
func (s *mpsService) watched(l *Layout, recorder events.Recorder) mps.Watched {
	return mps.Watched{
		Needed: s.needed(l),
		Changed: func(before, now mps.Answer) {
			l.mpsAnswer(now)
			switch unavailable := now.Unavailable; {
			case now.Problem != "":
				recorder.Warn(events.MPSUnavailable, events.ActionDetect, "New claims get no MPS share of this node: the MPS service cannot start a control daemon: "+
					now.Problem)
			case errors.Is(unavailable, gpu.ErrTimeout):
				recorder.Warn(events.MPSUnavailable, events.ActionDetect, fmt.Sprintf("New claims get no MPS share of this node: %v; the MPS service is slow or "+
					"hangs: check the log of its pod on this node, and the load of the node", unavailable))
			case unavailable != nil:
				recorder.Warn(events.MPSUnavailable, events.ActionDetect, fmt.Sprintf("New claims get no MPS share of this node, and processes that start "+
					"now cannot use one: %v; set the chart value mps.enabled to true, or check the pod of the MPS service on this node", unavailable))
			case now.Asked && before.Problem != "":
				recorder.Normal(events.MPSAvailable, events.ActionDetect, "The MPS service can start control daemons again")
			case now.Asked && before.Unavailable != nil:
				recorder.Normal(events.MPSAvailable, events.ActionDetect, "The MPS service answers again")
			}
		},
	}
}

// needed reports whether a node that advertises that has or had MPS shares. While the layout is not known, a service that was needed still is:
// otherwise its shares would not be advertised until it has been asked again.
func (s *mpsService) needed(advertised Advertised) func() bool {
	return func() bool {
		advertises, known := advertisesMPS(advertised)
		return advertises || !known && s.Watcher.Asked() || !s.Store.Empty()
	}
}

// mpsSteps have claims use their devices as MPS clients.
func mpsSteps(m *Machine) stepsOf {
	return func(advertised Advertised) map[string]prepare.Step {
		return map[string]prepare.Step{claim.StepMPS: mpsStep{Step: mps.Step{
			Service: m.mps.Service, MIG: m.Inventory.MIGDriver, Dir: m.mps.dir, Needed: m.mps.needed(advertised), Hook: m.programs.CreateRuntime,
			Socket: m.cfg.HookSocket(),
		}}}
	}
}

// mpsStep is the step with its metrics and Events.
type mpsStep struct {
	mps.Step
	// left may be nil.
	left *leftClients
}

// Metrics are those of this process.
func (s mpsStep) Metrics() []prepare.Metric {
	return diagnostics.MPSMetrics(s.Counts.Restarts, s.Counts.LimitsChanged, s.Counts.Failures)
}

// states counts the control daemons by state.
func (s *mpsService) states() map[string]int {
	counts := map[string]int{}
	for state, n := range s.Watcher.States() {
		counts[strings.ToLower(string(state))] = n
	}
	return counts
}

// reconciler builds what keeps the control daemons of shared devices running.
func (s *mpsService) reconciler(ctx context.Context, tx *prepare.Transaction, recorder events.Recorder) *mps.Reconciler {
	return mps.NewReconciler(mps.ReconcilerPorts{
		Service: s.Service, BootID: s.bootID, Records: func() ([]*checkpoint.Record, error) { return tx.Records() }, WithGPULock: tx.WithGPULock,
		Report: mps.Reports{
			Restarted: func(d mps.Shared, cause string) {
				klog.FromContext(ctx).Info("Started an MPS control daemon again", "daemon", d.ID, "gpu", d.GPU, "reason", cause)
				recorder.Warn(events.MPSDaemonRestarted, events.ActionReconcile, fmt.Sprintf("The MPS control daemon %s of GPU %s was started again (%s); "+
					"processes of its %d shares that used the GPU have lost it", d.ID, d.GPU, cause, d.Shares))
			},
			ServerRestarted: func(d mps.Shared) {
				klog.FromContext(ctx).Info("An MPS server exited and was started again", "daemon", d.ID, "gpu", d.GPU)
				recorder.Warn(events.MPSServerRestarted, events.ActionReconcile, fmt.Sprintf("The MPS server of GPU %s exited and was started again; "+
					"processes of its %d shares that used the GPU have lost it", d.GPU, d.Shares))
			},
			LimitsChanged: func(d mps.Shared, found gpu.MPSLimitsInForce, settings gpu.MPSDaemonSpec) {
				klog.FromContext(ctx).Info("Restored limits of an MPS control daemon", "daemon", d.ID, "gpu", d.GPU, "found", found)
				recorder.Warn(events.MPSLimitsChanged, events.ActionReconcile, fmt.Sprintf("Limits of the MPS control daemon %s of GPU %s were changed by a "+
					"process and are restored to %s; clients that connected meanwhile keep other limits", d.ID, d.GPU, limits(settings)))
			},
			SingleUser: func(d mps.Shared) {
				recorder.Warn(events.MPSSingleUser, events.ActionReconcile, fmt.Sprintf("The driver has no MPS server for all users: on GPU %s clients of "+
					"another user ID wait until those connected have exited", d.GPU))
			},
			Failed: func(d mps.Shared, err error) {
				klog.FromContext(ctx).Error(err, "A GPU with MPS shares cannot be used", "daemon", d.ID, "gpu", d.GPU)
				recorder.Warn(events.MPSDaemonFailed, events.ActionReconcile, fmt.Sprintf("The MPS shares of GPU %s cannot be used: %v", d.GPU, err))
			},
			Unread: func(err error) {
				klog.FromContext(ctx).Error(err, "MPS control daemons are not checked")
				recorder.Warn(events.MPSStateUnreadable, events.ActionReconcile, fmt.Sprintf("MPS control daemons that exit are not started again, and limits "+
					"that a process changes are not restored: %v", err))
			},
		},
	})
}

// limits words the settings of a daemon.
func limits(s gpu.MPSDaemonSpec) string {
	memory, threads := "no memory limit", "all SMs"
	if s.MemoryMiB > 0 {
		memory = fmt.Sprintf("%d MiB of memory", s.MemoryMiB)
	}
	if s.ActiveThreadPercentage > 0 {
		threads = fmt.Sprintf("%d %% of the threads", s.ActiveThreadPercentage)
	}
	return memory + " and " + threads
}
