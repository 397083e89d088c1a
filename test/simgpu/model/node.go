package model

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Node is one machine with GPUs and an NVIDIA driver.
type Node struct {
	Faults *Faults
	Calls  *Calls

	spec Spec

	mu     sync.Mutex
	driver driverState
	gpus   []*gpu
	events eventSets
	now    func() time.Time
	hold   SampleHold

	sessions map[*Session]struct{} // open ones

	latency MIGLatency
	handles uint64 // counts handles of instances, so that none is used twice
	watches []func()
}

// driverState is the kernel side of the driver.
type driverState struct {
	version    DriverVersion
	loaded     bool
	generation uint64 // counts loads; a session belongs to one of them
}

// New returns a node with its driver loaded. It refuses a spec that no real
// node could have, such as a board older drivers do not know.
func New(spec Spec) (*Node, error) {
	spec, err := spec.normal()
	if err != nil {
		return nil, err
	}
	node := &Node{Faults: NewFaults(), Calls: NewCalls(), spec: spec, events: newEventSets(), now: time.Now, hold: spec.SampleHold, sessions: map[*Session]struct{}{}}
	for i, id := range spec.Boards {
		board, err := BoardByID(id)
		if err != nil {
			return nil, fmt.Errorf("describing node %s: %w", spec.Name, err)
		}
		node.gpus = append(node.gpus, &gpu{
			board: board, id: newIdentity(spec.Name, i, spec.Minors[i], spec.replacements(i), board), mig: newMIG(slices.Contains(spec.MIG, i)),
			health: newHealth(board), persistenced: true,
		})
	}
	return node, node.Load(spec.Driver)
}

// Spec returns the spec from which the node was created, with the driver version and the MIG modes that a reboot would find now.
func (n *Node) Spec() Spec {
	n.mu.Lock()
	defer n.mu.Unlock()
	spec := n.spec
	spec.Driver = n.driver.version
	spec.MIG = nil
	spec.SampleHold = n.hold
	for i, g := range n.gpus {
		if g.board.MIG.NeedsReset && g.mig.pending {
			spec.MIG = append(spec.MIG, i)
		}
	}
	return spec
}

// ReplaceGPU makes Spec describe a node with another GPU of the same board in the place of one: a node is switched off for that. It fails with
// InvalidArgument if there is no such GPU.
func (n *Node) ReplaceGPU(ordinal int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ordinal < 0 || ordinal >= len(n.gpus) {
		return InvalidArgument
	}
	n.spec.Replaced = append(slices.Clone(n.spec.Replaced), ordinal)
	n.changed()
	return nil
}

// Load loads a driver, like a boot or an upgrade. Load resets the settings that real hardware loses; sessions of an earlier load stay
// invalid. Loading the loaded version again changes nothing.
func (n *Node) Load(version DriverVersion) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.driver.loaded && n.driver.version == version {
		return nil
	}
	if n.driver.loaded {
		return fmt.Errorf("loading driver %s: driver %s is loaded, unload it first", version, n.driver.version)
	}
	for _, g := range n.gpus {
		if version.Branch() < g.board.Product.MinDriver {
			return fmt.Errorf("loading driver %s: %s needs driver %d or later", version, g.board.Product.Name, g.board.Product.MinDriver)
		}
	}
	for _, g := range n.gpus {
		g.set = settings{}
		g.cuda, g.limits, g.sessions, g.samples = occupancy{}, nil, nil, nil
		g.meter.restart()
		g.at = n.now()
		g.mig.pending = g.mig.pending && g.board.MIG.NeedsReset
		g.mig.restart()
		g.health = g.health.repaired()
	}
	n.driver = driverState{version: version, loaded: true, generation: n.driver.generation + 1}
	n.changed()
	return nil
}

// Loads counts how often the driver was loaded.
func (n *Node) Loads() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.driver.generation
}

// CountLoads makes the next load the load loads+1. The driver must be unloaded. Sessions of earlier loads must be closed: a number may be
// used again.
func (n *Node) CountLoads(loads uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.driver.loaded {
		return fmt.Errorf("counting loads from %d: driver %s is loaded, unload it first", loads, n.driver.version)
	}
	n.driver.generation = loads
	return nil
}

// Unload unloads the driver: calls return DriverNotLoaded until Load.
func (n *Node) Unload() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.gpus {
		g.advance(n.now())
		g.endScripts()
	}
	n.driver.loaded = false
	n.events.wakeAll()
	n.changed()
}

// Watch calls f, with the node locked, after each change of the driver or of a MIG instance: f must not call the node.
func (n *Node) Watch(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watches = append(n.watches, f)
}

func (n *Node) changed() {
	for _, f := range n.watches {
		f()
	}
}

// Driver is the version of the driver and whether it is loaded.
func (n *Node) Driver() (DriverVersion, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.driver.version, n.driver.loaded
}

// Identities lists all GPUs in PCI order.
func (n *Node) Identities() []Identity {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := make([]Identity, len(n.gpus))
	for i, g := range n.gpus {
		ids[i] = g.id
	}
	return ids
}

// Boards lists the board of each GPU in PCI order.
func (n *Node) Boards() []Board {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]Board, len(n.gpus))
	for i, g := range n.gpus {
		list[i] = g.board
	}
	return list
}
