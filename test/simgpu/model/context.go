package model

import (
	"cmp"
	"slices"
)

// ContextRole is the part of a CUDA context in MPS.
type ContextRole uint32

// The roles: without MPS, the context of a server, the context of a server's client.
const (
	PlainContext ContextRole = iota
	MPSServerContext
	MPSClientContext
)

// ContextMemory is the memory in bytes of a context itself.
const ContextMemory = 512 * mebi

// ContextSpec describes a CUDA context before it exists.
type ContextSpec struct {
	PID     int
	Role    ContextRole
	Server  uint64   // the key of an MPS server: of itself, or of the client's server
	Limit   uint64   // of a client, in bytes, with the context itself; 0: none
	Cgroups []uint64 // of the process, its own first
}

// cudaContext is a context of a process on a GPU or a MIG device.
type cudaContext struct {
	ContextSpec
	id          uint64
	session     *Session
	used        uint64
	sm          float64           // requested share of the multiprocessors, in percent
	allocations map[uint64]uint64 // bytes by address
	ended       error             // returned by calls after the context was taken from its process, or had a fatal fault
}

// occupancy are the contexts on a GPU or a MIG device.
type occupancy struct{ contexts []*cudaContext }

func (o *occupancy) used() uint64 {
	var sum uint64
	for _, c := range o.contexts {
		sum += c.used
	}
	return sum
}

// admits applies the compute mode. The contexts of an MPS server and of its clients are one owner.
func (o *occupancy) admits(mode ComputeMode, spec ContextSpec) error {
	switch {
	case mode == ComputeProhibited:
		return InUse
	case spec.Role == MPSClientContext:
		if !slices.ContainsFunc(o.contexts, func(c *cudaContext) bool { return c.Role == MPSServerContext && c.Server == spec.Server }) {
			return NotFound
		}
		if o.faulted(spec.Server) {
			return ServerNotReady
		}
	case mode == ComputeExclusiveProcess:
		if slices.ContainsFunc(o.contexts, func(c *cudaContext) bool { return c.PID != spec.PID }) {
			return InUse
		}
	}
	return nil
}

// end takes contexts from their processes. The error of a context with a fault stays.
func (o *occupancy) end(match func(*cudaContext) bool, reason error) {
	o.contexts = slices.DeleteFunc(o.contexts, func(c *cudaContext) bool {
		if match(c) {
			c.ended = cmp.Or(c.ended, reason)
			return true
		}
		return false
	})
}

// remove ends a context; for an MPS server, also the contexts of its clients.
func (o *occupancy) remove(gone *cudaContext) {
	o.end(func(c *cudaContext) bool { return c == gone }, InvalidArgument)
	if gone.Role == MPSServerContext {
		o.end(func(c *cudaContext) bool { return c.servedBy(gone.Server) }, InvalidState)
	}
}

// occupancies lists the occupancy of the GPU and of each of its MIG devices.
func (g *gpu) occupancies() []*occupancy {
	list := []*occupancy{&g.cuda}
	for _, gi := range g.mig.instances {
		for _, ci := range gi.compute {
			list = append(list, &ci.cuda)
		}
	}
	return list
}

// onDevice runs f on the contexts of a visible GPU or MIG device, with its memory in bytes. A GPU in MIG mode takes
// no contexts: NotSupported.
func (s *Session) onDevice(h Handle, f func(g *gpu, o *occupancy, total uint64) error) error {
	return s.withParent(h, func(g *gpu) error {
		g.advance(s.node.now())
		if h.kind() == 0 {
			if g.mig.current {
				return NotSupported
			}
			return f(g, &g.cuda, (g.board.Memory.TotalMiB-g.board.Memory.ReservedMiB)*mebi)
		}
		gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.device == h })
		if ci == nil || !s.shows(g, gi, ci) {
			return InvalidArgument
		}
		return f(g, &ci.cuda, gi.profile.MemoryMiB*mebi)
	})
}

// CreateContext creates a CUDA context on a GPU or a MIG device. It fails with InUse if the compute mode does not allow it, with NotFound
// for a client whose MPS server has no context there, with ServerNotReady if clients of that server have a fault, and with OutOfMemory.
func (s *Session) CreateContext(h Handle, spec ContextSpec) (uint64, error) {
	var id uint64
	err := s.onDevice(h, func(g *gpu, o *occupancy, total uint64) error {
		if err := o.admits(g.set.compute, spec); err != nil {
			return err
		}
		free := g.room(spec.Cgroups, total-min(o.used(), total))
		if ContextMemory > free || spec.Limit != 0 && spec.Limit < ContextMemory {
			return OutOfMemory
		}
		s.node.handles++
		id = s.node.handles
		o.contexts = append(o.contexts, &cudaContext{
			ContextSpec: spec, id: id, session: s, used: ContextMemory, allocations: map[uint64]uint64{},
		})
		if s.contexts == nil {
			s.contexts = map[uint64]*cudaContext{}
		}
		s.contexts[id] = o.contexts[len(o.contexts)-1]
		return nil
	})
	return id, err
}

// withContext runs f on a context of the session: InvalidArgument for one that does not exist, InvalidState when its MPS
// server is gone, NotReady when the server ended it, IllegalAddress after a fault.
func (s *Session) withContext(h Handle, id uint64, f func(g *gpu, o *occupancy, c *cudaContext, total uint64) error) error {
	return s.onDevice(h, func(g *gpu, o *occupancy, total uint64) error {
		c := s.contexts[id]
		if c == nil {
			return InvalidArgument
		}
		if c.ended != nil {
			return c.ended
		}
		return f(g, o, c, total)
	})
}

// DestroyContext destroys a context and frees its memory.
func (s *Session) DestroyContext(h Handle, id uint64) error {
	return s.withContext(h, id, func(_ *gpu, o *occupancy, c *cudaContext, _ uint64) error {
		o.remove(c)
		delete(s.contexts, id)
		return nil
	})
}

// EndClients takes the contexts from an MPS client of the server with that key. Its calls return NotReady then.
func (s *Session) EndClients(h Handle, server uint64, pid int) error {
	return s.onDevice(h, func(_ *gpu, o *occupancy, _ uint64) error {
		o.end(func(c *cudaContext) bool {
			return c.servedBy(server) && c.PID == pid && c.ended == nil
		}, NotReady)
		return nil
	})
}

// Allocate allocates device memory in a context. It fails with OutOfMemory above the limit of the context or the memory
// of the device.
func (s *Session) Allocate(h Handle, id, bytes uint64) (uint64, error) {
	var address uint64
	err := s.withContext(h, id, func(g *gpu, o *occupancy, c *cudaContext, total uint64) error {
		if bytes == 0 {
			return InvalidArgument
		}
		if bytes > g.room(c.Cgroups, o.free(c, total)) {
			return OutOfMemory
		}
		s.node.handles++
		address = s.node.handles << 12
		c.allocations[address] = bytes
		c.used += bytes
		return nil
	})
	return address, err
}

// Release frees an allocation by its address.
func (s *Session) Release(h Handle, id, address uint64) error {
	return s.withContext(h, id, func(_ *gpu, _ *occupancy, c *cudaContext, _ uint64) error {
		bytes, known := c.allocations[address]
		if !known {
			return InvalidArgument
		}
		delete(c.allocations, address)
		c.used -= bytes
		return nil
	})
}

// free returns the memory that a context can still allocate.
func (o *occupancy) free(c *cudaContext, total uint64) uint64 {
	used := o.used()
	free := total - min(used, total)
	if c.Limit != 0 {
		free = min(free, c.Limit-min(c.used, c.Limit))
	}
	return free
}

// ContextMemoryInfo returns the memory that a context can still allocate, and the memory of its device: a limit lowers only the first.
func (s *Session) ContextMemoryInfo(h Handle, id uint64) (free, total uint64, err error) {
	err = s.withContext(h, id, func(g *gpu, o *occupancy, c *cudaContext, all uint64) error {
		free, total = g.room(c.Cgroups, o.free(c, all)), g.shown(c.Cgroups, all)
		return nil
	})
	return free, total, err
}

// closeContexts ends the contexts of a process that has exited.
func (s *Session) closeContexts() {
	for _, g := range s.node.gpus {
		g.advance(s.node.now())
		for _, o := range g.occupancies() {
			for _, c := range slices.Clone(o.contexts) {
				if c.session == s {
					o.remove(c)
				}
			}
		}
	}
	s.contexts = nil
}
