package model

// ResetGPU resets a GPU: problems that a reset repairs end, a pending MIG mode becomes current, GPU instances are destroyed. It fails with
// InUse while a process holds the GPU, InvalidArgument if there is no such GPU. Open sessions do not matter, as if each process had closed
// its session and opened another one.
func (n *Node) ResetGPU(ordinal int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ordinal < 0 || ordinal >= len(n.gpus) {
		return InvalidArgument
	}
	return n.reset(n.gpus[ordinal])
}

// ResetDetachedGPU is ResetGPU as an administrator can do it: it fails with InUse also while any session is attached to the GPU. NVML
// attaches all GPUs that a process sees when it is initialised. Persistence mode attaches a GPU too.
func (n *Node) ResetDetachedGPU(ordinal int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ordinal < 0 || ordinal >= len(n.gpus) {
		return InvalidArgument
	}
	return n.resetBy(nil, n.gpus[ordinal])
}

// Reset is ResetDetachedGPU by a process that has a session itself; NoPermission unless root calls.
func (s *Session) Reset(h Handle, root bool) error {
	return s.with(h, func(g *gpu) error {
		if !root {
			return NoPermission
		}
		return s.node.resetBy(s, g)
	})
}

func (n *Node) resetBy(own *Session, g *gpu) error {
	if g.set.persistence {
		return InUse
	}
	for s := range n.sessions {
		if s != own && s.alive() == nil && s.Attached(g.id.Ordinal) {
			return InUse
		}
	}
	return n.reset(g)
}

// Attached reports whether the session attached a GPU when it was opened.
func (s *Session) Attached(ordinal int) bool { return s.sees(handleOf(ordinal)) != nil }

func (n *Node) reset(g *gpu) error {
	if g.inUse() {
		return InUse
	}
	g.advance(n.now())
	g.mig.restart()
	n.Faults.removeWhere(func(f Fault) bool { return f.GPU == g.id.Ordinal && (f.lost() || f.Effect == EffectHang) })
	n.recover(g)
	n.changed()
	return nil
}

// recover ends what a reset or a reload of the driver repairs.
func (n *Node) recover(g *gpu) {
	before := g.health.Action
	g.health = g.health.repaired()
	if before != g.health.Action {
		n.post(g.id.Ordinal, Event{Type: EventRecoveryAction, GPUInstance: NoInstance})
	}
}
