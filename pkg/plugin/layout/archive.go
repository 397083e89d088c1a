package layout

import (
	"maps"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// archive saves layouts and settings, and loads the ones that another process saved.
type archive struct {
	options *Options
	state   *state
	output  *output
	// saved is the state that was saved or loaded last.
	saved Saved
}

// load reads the saved state and adds the modes that are not saved: without them the layout would differ.
func (a *archive) load() (Saved, error) {
	saved, err := a.options.Store.Load()
	saved.GPUs = maps.Clone(saved.GPUs)
	for id, modes := range saved.GPUs {
		modes.Extra = a.options.Modes
		saved.GPUs[id] = modes
	}
	return saved, err
}

// recall loads the saved layouts and settings.
func (a *archive) recall() {
	saved, err := a.load()
	if err != nil {
		a.state.notices.warn(advice{reason: events.LayoutStateUnreadable}, "Layouts of GPUs without prepared claims may change at once: "+err.Error())
		return
	}
	a.saved = saved
	if saved.GPUs == nil || saved.same(Saved{GPUs: a.state.rollout.current, Flags: saved.Flags}) {
		return // no other process has changed anything
	}
	a.output.stale = true
	a.state.rollout.Complete(saved.GPUs)
}

// follow loads the layouts that the leading process has saved since, so that this one knows the devices that were allocated meanwhile: in a rolling
// update the kubelet calls the process that registered last. A layout is saved before it is advertised.
func (a *archive) follow() {
	saved, err := a.load()
	if err != nil {
		klog.Background().V(2).Info("The layout that another process advertises was not read", "reason", err.Error())
		return
	}
	if saved.GPUs == nil || saved.same(a.saved) {
		return
	}
	a.state.rollout.Complete(saved.GPUs)
	a.saved, a.output.stale = saved, true
}

// of is the state to save while GPUs are advertised in a layout.
func (a *archive) of(layout gpu.Layout) Saved {
	return Saved{GPUs: maps.Clone(layout), Flags: a.state.config.flags(a.saved.Flags)}
}

// save stores layouts and settings durably.
func (a *archive) save(layout gpu.Layout) error {
	saved := a.of(layout)
	if err := a.options.Store.Save(saved); err != nil {
		a.saved = Saved{Flags: a.saved.Flags} // the file may have been replaced in spite of the error, so the layout is saved again
		return err
	}
	a.saved = saved
	return nil
}
