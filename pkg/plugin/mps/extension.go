package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// Options are the settings and ports of an Extension.
type Options struct {
	// Daemons is the MPS service; nil for a machine without one.
	Daemons Daemons
	Store   StoreOptions
	// Modes and MIG open the driver; gpu.ErrDriverNotLoaded without one.
	Modes Modes
	MIG   func() (gpu.MIGDriver, error)
	// Load identifies the present load of the driver; Process finds processes of the host.
	Load    func() string
	Process Process
	// Dir is the host's directory with the directories of control daemons.
	Dir  string
	Hook HookOptions
}

// StoreOptions name the directory in which compute modes are saved, and the boot.
type StoreOptions struct {
	Files       disk.Files
	Dir, BootID string
}

// HookOptions are the CDI hook of Prism, and the socket on which it reports a container that it refuses.
type HookOptions struct {
	Command func(args ...string) *specs.Hook
	Socket  string
}

// Extension lets claims use devices as MPS clients: it plans and marks such claims, starts control daemons through the node's MPS service,
// keeps these running, and keeps new claims from MPS shares while the service does not answer.
type Extension struct {
	*Service
	options    Options
	node       extension.Attachment
	reconciler *Reconciler
}

// New builds it; the service is not asked before it is needed.
func New(o Options) *Extension {
	if o.Daemons == nil {
		o.Daemons = NoDaemons{}
	}
	return &Extension{options: o, Service: &Service{
		Daemons: o.Daemons, Modes: o.Modes, Store: NewStore(o.Store.Files, o.Store.Dir, o.Store.BootID), Load: o.Load, Counts: &Counts{},
		Process: o.Process, Watcher: NewWatcher(o.Daemons),
	}}
}

// Kind is claim.KindMPS.
func (*Extension) Kind() string { return claim.KindMPS }

// Claim bounds the shares of claims that use MPS.
func (*Extension) Claim(context.Context) claim.PlanExtension { return claim.MPSExtension{} }

// Mark is added to a type of device that is used with or without MPS.
func (*Extension) Mark(r *checkpoint.Result) string {
	if r.Type == gpu.TypeMPS || !r.Extensions.Has(claim.KindMPS) {
		return ""
	}
	return "+" + string(gpu.TypeMPS)
}

// Steps makes claims use their devices as MPS clients.
func (e *Extension) Steps(advertised extension.Advertised, recorder events.Recorder) map[string]prepare.Step {
	return map[string]prepare.Step{claim.StepMPS: reportingStep{
		Step: Step{
			Service: e.Service, MIG: e.options.MIG, Dir: e.options.Dir, Needed: e.Needed(advertised), Hook: e.options.Hook.Command,
			Socket: e.options.Hook.Socket,
		},
		left: newLeftClients(recorder),
	}}
}

// Attach makes the service's answers decide whether the node's shares are advertised; none is advertised before the first answer.
func (e *Extension) Attach(ctx context.Context, node extension.Attachment) {
	e.node, e.reconciler = node, e.newReconciler(ctx, node)
	e.setAvailability(Answer{})
	node.SetFailed(gpu.TypeMPS, nil)
}

// Begin asks the service once, as far as that is quick.
func (e *Extension) Begin(ctx context.Context) { e.Watcher.Begin(ctx, e.Watched()) }

// Run follows the service until the context ends.
func (e *Extension) Run(ctx context.Context) error { return e.Watcher.Run(ctx, e.Watched()) }

// Lead keeps control daemons of shared devices running until the context ends.
func (e *Extension) Lead(ctx context.Context) { e.reconciler.Run(ctx) }

// Renewed asks the service again: the node's advertised devices may have changed.
func (e *Extension) Renewed() { e.Watcher.Wake() }

// Reconcile is one round of Lead.
func (e *Extension) Reconcile(ctx context.Context, all bool) { e.reconciler.Reconcile(ctx, all) }

// setAvailability keeps new claims from MPS shares while the service does not answer or can start no control daemon, and has none advertised before it
// was asked.
func (e *Extension) setAvailability(answer Answer) {
	switch {
	case !answer.Asked:
		e.node.SetAvailability(gpu.TypeMPS, extension.Unknown)
	case answer.Usable():
		e.node.SetAvailability(gpu.TypeMPS, extension.Available)
	default:
		e.node.SetAvailability(gpu.TypeMPS, extension.Unavailable)
	}
}

// advertises reports whether the node advertises MPS shares, and whether that is known.
func advertises(advertised extension.Advertised) (advertises, known bool) {
	node, layout, err := advertised()
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

// Needed reports whether a node that advertises that has or had MPS shares. While the layout is not known, a service that was needed still is:
// otherwise its shares would not be advertised until it has been asked again.
func (e *Extension) Needed(advertised extension.Advertised) func() bool {
	return func() bool {
		advertises, known := advertises(advertised)
		return advertises || !known && e.Watcher.Asked() || !e.Store.Empty()
	}
}

// reportingStep is the step with its metrics and Events.
type reportingStep struct {
	Step
	left *leftClients
}

// Metrics are the metrics of this process.
func (s reportingStep) Metrics() []prepare.Metric {
	return Metrics(s.Counts, s.Watcher.States)
}

// Watched taints the node's shares while the service does not answer or can start no control daemon, and advertises none before the service
// was asked.
func (e *Extension) Watched() Watched {
	recorder := e.node.Events
	return Watched{
		Needed: e.Needed(e.node.Advertised),
		Changed: func(before, now Answer) {
			e.setAvailability(now)
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

// Exceeded says how results with these uses exceed the bounds of the step's device; empty if they do not.
func (Step) Exceeded(s checkpoint.Step, results []json.RawMessage) (string, error) {
	args, err := claim.ParseMPS(s.Args)
	if err != nil {
		return "", err
	}
	return args.Exceeded(results)
}
