package model

// A GPU is initialised while it has clients: sessions with a handle of it, contexts, and processes that hold it. State that only lasts
// while it is initialised is lost with the last client, unless nvidia-persistenced or persistence mode keeps the GPU initialised.

// initialised reports whether something keeps the state of the GPU.
func (g *gpu) initialised() bool {
	return g.persistenced || g.set.persistence || len(g.sessions) > 0 || g.inUse()
}

// clientGone resets the compute mode when the last client is gone.
func (g *gpu) clientGone() {
	if !g.initialised() {
		g.set.compute = ComputeDefault
	}
}

// initialise makes the session a client of a GPU; the node is locked.
func (s *Session) initialise(g *gpu) {
	if g.sessions == nil {
		g.sessions = map[*Session]struct{}{}
	}
	g.sessions[s] = struct{}{}
}

// handle returns the handle of a visible GPU, and initialises the GPU.
func (s *Session) handle(g *gpu) (Handle, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return handleOf(g.id.Ordinal), err
	}
	s.initialise(g)
	return handleOf(g.id.Ordinal), nil
}

// SetPersistenced sets whether nvidia-persistenced keeps a GPU initialised, which it does on a new node. Without it persistence mode is off
// too, until it is set again through NVML. It fails with InvalidArgument if there is no such GPU.
func (n *Node) SetPersistenced(ordinal int, on bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ordinal < 0 || ordinal >= len(n.gpus) {
		return InvalidArgument
	}
	g := n.gpus[ordinal]
	g.persistenced = on
	if !on {
		g.set.persistence = false
		g.clientGone()
	}
	return nil
}
