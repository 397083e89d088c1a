package driver

import (
	"maps"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/inventory"
)

// Standby tells whether this process does not lead on the node: another one may, as in a rolling update, and advertise another layout at
// any moment.
func (o *Offering) Standby() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.drain.leading
}

// follow takes up what the process that leads has saved since, so that this one knows the devices that were allocated meanwhile: the kubelet
// asks the process that registered last. A layout is saved before it is advertised.
func (o *Offering) follow() {
	if o.drain.leading {
		return
	}
	saved, err := o.ports.Saved.Load()
	if err != nil {
		klog.Background().V(2).Info("The layout that another process advertises was not read", "reason", err.Error())
		return
	}
	if saved.GPUs == nil || saved.same(o.drain.saved) {
		return
	}
	maps.Copy(o.going.current, saved.GPUs)
	o.drain.saved, o.drain.news, o.seen = saved, true, nil
}

// followed follows, and tells whether there was something new since it was called last.
func (o *Offering) followed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.follow()
	news := o.drain.news
	o.drain.news = false
	return news
}

// resolved works out the layout for a view, where it is not known yet.
func (o *Offering) resolved(view *inventory.View) error {
	if o.config.unread != nil {
		return o.config.unread
	}
	if o.seen == view {
		return nil
	}
	return o.resolve(view)
}
