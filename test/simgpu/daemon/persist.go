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

// trace keeps on the disk what follows from the state of a node: the MIG capability files, and what a reboot finds. It is there
// before a caller hears of a change.
type trace struct {
	paths layout.Paths
	node  *model.Node
	stale atomic.Bool

	turn sync.Mutex
	keep func(model.Spec) error // nil: nothing
	kept model.Spec
}

func newTrace(paths layout.Paths, node *model.Node) *trace {
	t := &trace{paths: paths, node: node, kept: node.Spec()}
	node.Watch(func() { t.stale.Store(true) })
	return t
}

// settle returns when the disk is up to date; what fails goes to the daemon's log.
func (t *trace) settle() {
	t.turn.Lock()
	defer t.turn.Unlock()
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

func (t *trace) keepSpec() error {
	spec := t.node.Spec()
	if t.keep == nil || reflect.DeepEqual(spec, t.kept) {
		return nil
	}
	t.kept = spec
	return t.keep(spec)
}

// Keep lets f keep what a reboot of the node would find, whenever that changes. It is called before Run.
func (d *Daemon) Keep(f func(model.Spec) error) { d.trace.keep = f }
