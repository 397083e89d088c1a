package model

import (
	"context"
	"time"
)

// MIGLatency are the durations of changes of a GPU, which the driver serialises per GPU.
type MIGLatency struct {
	SetMode                time.Duration `json:"setMode,omitempty"`
	CreateGPUInstance      time.Duration `json:"createGPUInstance,omitempty"`
	DestroyGPUInstance     time.Duration `json:"destroyGPUInstance,omitempty"`
	CreateComputeInstance  time.Duration `json:"createComputeInstance,omitempty"`
	DestroyComputeInstance time.Duration `json:"destroyComputeInstance,omitempty"`
}

// mig is the MIG state of one GPU.
type mig struct {
	busy             chan struct{} // holds a token while the driver changes the GPU
	current, pending bool
	instances        []*gpuInstance // by id
}

func newMIG(on bool) mig {
	return mig{busy: make(chan struct{}, 1), current: on, pending: on}
}

// restart simulates a reset: all instances are destroyed.
func (m *mig) restart() {
	m.current = m.pending
	m.instances = nil
}

// SetMIGLatency sets how long changes take from now on.
func (n *Node) SetMIGLatency(latency MIGLatency) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = latency
}

// Hold simulates a process that uses the GPU or the MIG device with that UUID until release is called (once or more). It fails with
// NotFound if there is no such device.
func (n *Node) Hold(uuid string) (release func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g, clients := n.clientsOf(uuid)
	if clients == nil {
		return nil, NotFound
	}
	*clients++
	held := true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if held {
			*clients--
			held = false
			g.clientGone()
		}
	}, nil
}

func (n *Node) clientsOf(uuid string) (*gpu, *int) {
	for _, g := range n.gpus {
		if g.id.UUID == uuid {
			return g, &g.clients
		}
		for _, gi := range g.mig.instances {
			for _, ci := range gi.compute {
				if ci.uuid == uuid {
					return g, &ci.clients
				}
			}
		}
	}
	return nil, nil
}

// inUse reports whether any process holds the GPU or a MIG device of it.
func (g *gpu) inUse() bool {
	clients := g.clients + len(g.cuda.contexts)
	for _, gi := range g.mig.instances {
		for _, ci := range gi.compute {
			clients += ci.clients + len(ci.cuda.contexts)
		}
	}
	return clients > 0
}

// inUse reports whether any process holds the MIG device.
func (ci *computeInstance) inUse() bool { return ci.clients+len(ci.cuda.contexts) > 0 }

// MIGMode reads whether MIG mode is on now, and whether it will be after the next reset. It fails with NotSupported on a board without MIG.
func (s *Session) MIGMode(h Handle) (current, pending bool, err error) {
	err = s.with(h, func(g *gpu) error {
		if !g.board.MIG.Capable() {
			return NotSupported
		}
		current, pending = g.mig.current, g.mig.pending
		return nil
	})
	return current, pending, err
}

// SetMIGMode sets the mode. It fails with NotSupported on a board without MIG, NoPermission unless root of the host calls, and InUse while
// there are GPU instances that the change would destroy. activation is nil if the mode is in effect; InUse while a process holds the GPU,
// and ResetRequired on boards that need a reset: the mode is pending then.
func (s *Session) SetMIGMode(ctx context.Context, h Handle, on, root bool) (activation, err error) {
	if h.kind() != 0 {
		return nil, InvalidArgument
	}
	err = s.change(ctx, h, root, func(g *gpu) (time.Duration, error) {
		m := &g.mig
		if len(m.instances) > 0 && !on {
			return 0, InUse
		}
		m.pending = on
		switch {
		case m.current == on:
			return 0, nil
		case g.inUse():
			activation = InUse
			return 0, nil
		case g.board.MIG.NeedsReset:
			activation = ResetRequired
			return 0, nil
		}
		m.restart()
		return s.node.latency.SetMode, nil
	})
	return activation, err
}

// change makes a change that requires root and the node's capability, one at a time per GPU. f returns its duration; its effect
// exists from the start, also if the caller is killed meanwhile.
func (s *Session) change(ctx context.Context, h Handle, root bool, f func(*gpu) (time.Duration, error)) error {
	g := s.sees(h)
	switch {
	case g == nil:
		return InvalidArgument
	case !g.board.MIG.Capable():
		return NotSupported
	case !s.may(root):
		return NoPermission
	}
	select {
	case g.mig.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.mig.busy }()
	takes, err := s.start(g, f)
	if err != nil || takes == 0 {
		return err
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) start(g *gpu, f func(*gpu) (time.Duration, error)) (time.Duration, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return 0, err
	}
	g.advance(s.node.now())
	takes, err := f(g)
	if err == nil {
		s.node.changed()
	}
	return takes, err
}
