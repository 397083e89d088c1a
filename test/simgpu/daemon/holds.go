package daemon

import (
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// holds are the simulated processes that use a GPU or a MIG device, by its UUID.
type holds struct {
	mu       sync.Mutex
	releases map[string][]func()
}

// add adds a process that uses the device.
func (h *holds) add(node *model.Node, uuid string) error {
	release, err := node.Hold(uuid)
	if err != nil {
		return fmt.Errorf("holding %q: no GPU or MIG device of the node has this UUID: %w", uuid, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.releases == nil {
		h.releases = map[string][]func(){}
	}
	h.releases[uuid] = append(h.releases[uuid], release)
	return nil
}

// end removes all processes that use the device, or any device if uuid is empty.
func (h *holds) end(uuid string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if uuid != "" && h.releases[uuid] == nil {
		return fmt.Errorf("releasing %q: it is not held", uuid)
	}
	for held, releases := range h.releases {
		if uuid != "" && held != uuid {
			continue
		}
		for _, release := range releases {
			release()
		}
		delete(h.releases, held)
	}
	return nil
}
