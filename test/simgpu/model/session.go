package model

import (
	"slices"
	"strings"
)

// Handle names a GPU, or an instance on it, inside NVML calls. It is never 0.
type Handle uint64

const handleBase, handleStep = 0x10000, 0x100

// The kinds of handles of instances. No number is used twice.
const (
	gpuInstanceHandle = iota + 1
	computeInstanceHandle
	migDeviceHandle
)

const kindShift, ordinalShift = 56, 48

func (n *Node) newHandle(kind uint64, g *gpu) Handle {
	n.handles++
	return Handle(kind<<kindShift | uint64(g.id.Ordinal)<<ordinalShift | n.handles)
}

func (h Handle) kind() uint64 { return uint64(h) >> kindShift }

// IsMIGDevice reports whether the handle can be the handle of a MIG device.
func (h Handle) IsMIGDevice() bool { return h.kind() == migDeviceHandle }

func handleOf(ordinal int) Handle { return Handle(handleBase + ordinal*handleStep) }

// Ordinal returns the GPU that a handle names, or on which the instance is, in PCI order of the whole node, or -1. It does not check
// visibility.
func (h Handle) Ordinal() int {
	if h.kind() != 0 {
		return int(uint64(h) >> ordinalShift & 0xff)
	}
	if h < handleBase || (h-handleBase)%handleStep != 0 {
		return -1
	}
	return int(h-handleBase) / handleStep
}

// Session is an initialised NVML: it sees the GPUs and MIG devices whose device
// nodes its process could open, for as long as the driver that it opened stays
// loaded.
type Session struct {
	node         *Node
	generation   uint64
	visible      []*gpu // in PCI order; the position is the NVML index
	capabilities []uint32
	contexts     map[uint64]*cudaContext
	samples      map[uint64]*gpmSample
	held         []*gpmSample // freed, but they hold their instance until the session ends
}

// Open starts a session that sees all MIG devices of the GPUs with those
// minors. It fails like OpenWith.
func (n *Node) Open(library DriverVersion, minors []int) (*Session, error) {
	return n.OpenWith(library, DeviceNodes{Minors: minors, Capabilities: []uint32{ConfigCapability}})
}

// OpenWith starts a session. library is the version of the caller's NVML library (empty: do not compare), nodes are the caller's device
// nodes. It fails with DriverNotLoaded, or LibRMVersionMismatch when library and driver differ.
func (n *Node) OpenWith(library DriverVersion, nodes DeviceNodes) (*Session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.driver.loaded {
		return nil, DriverNotLoaded
	}
	if library != "" && library != n.driver.version {
		return nil, LibRMVersionMismatch
	}
	s := &Session{node: n, generation: n.driver.generation, capabilities: nodes.Capabilities}
	for _, g := range n.gpus {
		if slices.Contains(nodes.Minors, g.id.Minor) && !n.Faults.Unlisted(g.id.Ordinal) {
			s.visible = append(s.visible, g)
		}
	}
	n.sessions[s] = struct{}{}
	return s, nil
}

// Alive fails with DriverNotLoaded once the driver of the session is gone,
// also when another one was loaded since.
func (s *Session) Alive() error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return s.alive()
}

func (s *Session) alive() error {
	if d := s.node.driver; !d.loaded || d.generation != s.generation {
		return DriverNotLoaded
	}
	return nil
}

// Count returns the number of GPUs that the session sees.
func (s *Session) Count() (int, error) {
	return len(s.visible), s.Alive()
}

// ByIndex finds a visible GPU by its NVML index.
func (s *Session) ByIndex(index int) (Handle, error) {
	if index < 0 || index >= len(s.visible) {
		return 0, InvalidArgument
	}
	return s.handle(s.visible[index])
}

// ByUUID finds a visible GPU by "GPU-…", or a MIG device on one by "MIG-…".
func (s *Session) ByUUID(uuid string) (Handle, error) {
	if strings.HasPrefix(uuid, "MIG-") {
		return s.migByUUID(uuid)
	}
	return s.find(func(id Identity) bool { return id.UUID == uuid })
}

// BySerial finds a visible GPU by its serial number.
func (s *Session) BySerial(serial string) (Handle, error) {
	return s.find(func(id Identity) bool { return id.Serial == serial })
}

// ByPCI finds a visible GPU by PCI address, in any form that NVML accepts.
func (s *Session) ByPCI(address string) (Handle, error) {
	want := strings.ToUpper(address)
	return s.find(func(id Identity) bool { return want == id.PCI.Long() || want == id.PCI.Short() })
}

func (s *Session) find(match func(Identity) bool) (Handle, error) {
	for _, g := range s.visible {
		if match(g.id) {
			return s.handle(g)
		}
	}
	return 0, NotFound
}

// Index returns the NVML index of a GPU in this session, or of a MIG device on its GPU.
func (s *Session) Index(h Handle) (int, error) {
	if h.kind() != 0 {
		return s.migIndex(h)
	}
	index := slices.Index(s.visible, s.sees(h))
	if index < 0 {
		return 0, InvalidArgument
	}
	return index, s.Alive()
}

// with runs f on a visible GPU under the node's lock. It fails with InvalidArgument for a handle that the session cannot know.
func (s *Session) with(h Handle, f func(*gpu) error) error {
	if h.kind() != 0 {
		return InvalidArgument
	}
	return s.withParent(h, f)
}

// sees returns the visible GPU of a handle, nil if there is none.
func (s *Session) sees(h Handle) *gpu {
	for _, g := range s.visible {
		if g.id.Ordinal == h.Ordinal() {
			return g
		}
	}
	return nil
}

// withParent is with for handles of instances too: f gets their GPU.
func (s *Session) withParent(h Handle, f func(*gpu) error) error {
	g := s.sees(h)
	if g == nil {
		return InvalidArgument
	}
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return err
	}
	s.initialise(g)
	return f(g)
}
