package daemon

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// caps keeps the MIG capability files of a node up to date: they are there before a caller hears of an instance, and gone
// before it hears that the instance is.
type caps struct {
	paths layout.Paths
	node  *model.Node
	stale atomic.Bool
	turn  sync.Mutex
}

func watchCaps(paths layout.Paths, node *model.Node) *caps {
	c := &caps{paths: paths, node: node}
	node.Watch(func() { c.stale.Store(true) })
	return c
}

// settle returns when the files are up to date; what fails goes to the daemon's log.
func (c *caps) settle() {
	c.turn.Lock()
	defer c.turn.Unlock()
	if !c.stale.Swap(false) {
		return
	}
	if err := c.paths.ShowCapabilities(c.node); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
