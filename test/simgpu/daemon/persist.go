package daemon

import (
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// persister writes the files that depend on the state of a node: the MIG capability files, and the state that survives a reboot. They
// are written before the call that changed the state returns.
type persister struct {
	paths layout.Paths
	node  *model.Node
	stale atomic.Bool

	mu   sync.Mutex
	keep func(model.Spec) error // nil: nothing
	kept model.Spec
}

func newPersister(paths layout.Paths, node *model.Node) *persister {
	t := &persister{paths: paths, node: node, kept: node.Spec()}
	node.Watch(func() { t.stale.Store(true) })
	return t
}

// flush updates the files; errors are written to the daemon's log.
func (t *persister) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stale.Swap(false) {
		return
	}
	if err := t.paths.ShowCapabilities(t.node); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := t.keepSpec(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (t *persister) keepSpec() error {
	spec := t.node.Spec()
	if t.keep == nil || reflect.DeepEqual(spec, t.kept) {
		return nil
	}
	t.kept = spec
	return t.keep(spec)
}

// Keep makes the daemon call f with the state that survives a reboot, whenever it changes. It is called before Run.
func (d *Daemon) Keep(f func(model.Spec) error) { d.persister.keep = f }
