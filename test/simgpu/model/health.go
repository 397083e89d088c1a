package model

import (
	"fmt"
	"time"
)

// RecoveryAction is NVML's repair that the driver asks for. Drivers may report values that NVML does not define yet.
type RecoveryAction uint32

// LastRecoveryAction is the last action that NVML defines: to reboot the system. 0 is none, 1 a reset of the GPU.
const LastRecoveryAction RecoveryAction = 7

// FabricState is NVML's state of the registration with the fabric of an NVSwitch board.
type FabricState uint8

// The states.
const (
	FabricNotSupported FabricState = iota
	FabricNotStarted
	FabricInProgress
	FabricCompleted
)

// Health is the state of a GPU that a repair changes, besides faults.
type Health struct {
	Action            RecoveryAction `json:"action,omitempty"`
	RowRemapPending   bool           `json:"rowRemapPending,omitempty"`
	RowRemapFailure   bool           `json:"rowRemapFailure,omitempty"`
	RetirementPending bool           `json:"retirementPending,omitempty"`
	Fabric            FabricState    `json:"fabric,omitempty"` // FabricNotSupported on boards without NVSwitch
}

// newHealth is the health of a board without problems.
func newHealth(b Board) Health {
	if b.HasFabric() {
		return Health{Fabric: FabricCompleted}
	}
	return Health{}
}

// repaired is the health after a reset of the GPU or a reload of the driver: the row remapper has no rows left as before, and the fabric
// manager decides about the fabric.
func (h Health) repaired() Health {
	return Health{RowRemapFailure: h.RowRemapFailure, Fabric: h.Fabric}
}

// check fails if the GPU or the driver of this branch cannot report the health.
func (h Health) check(b Board, branch int) error {
	switch {
	case h.Action != 0 && branch < recoveryBranch:
		return fmt.Errorf("recovery action %d: drivers report it from branch %d, this one is %d", h.Action, recoveryBranch, branch)
	case (h.RowRemapPending || h.RowRemapFailure) && b.RetiresPages():
		return fmt.Errorf("remapped rows: %s retires pages", b.Product.Name)
	case h.RetirementPending && !b.RetiresPages():
		return fmt.Errorf("retired pages: %s remaps rows", b.Product.Name)
	case h.Fabric > FabricCompleted:
		return fmt.Errorf("fabric state %d: must be between %d and %d", h.Fabric, FabricNotSupported, FabricCompleted)
	case h.Fabric != FabricNotSupported && !b.HasFabric():
		return fmt.Errorf("fabric state %d: %s has no NVSwitch", h.Fabric, b.Product.Name)
	}
	return nil
}

// ChangeHealth changes the health of a GPU, and raises the event of a recovery action that changes. It fails with InvalidArgument if there
// is no such GPU, and if the board or the driver cannot report the new state; then nothing changes.
func (n *Node) ChangeHealth(ordinal int, change func(*Health)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ordinal < 0 || ordinal >= len(n.gpus) {
		return InvalidArgument
	}
	g := n.gpus[ordinal]
	next := g.health
	change(&next)
	if err := next.check(g.board, n.driver.version.Branch()); err != nil {
		return fmt.Errorf("changing the health of GPU %d: %w", ordinal, err)
	}
	acts := next.Action != g.health.Action
	g.health = next
	if acts {
		n.post(ordinal, Event{Type: EventRecoveryAction, GPUInstance: NoInstance})
	}
	return nil
}

// Heal ends all problems of all GPUs, with the faults.
func (n *Node) Heal() {
	n.Faults.Clear()
	for i, board := range n.Boards() {
		_ = n.ChangeHealth(i, func(h *Health) { *h = newHealth(board) }) // a GPU without problems is always possible
	}
}

// Fabric reads the state of the registration with the fabric. It fails with NotSupported on boards without NVSwitch.
func (s *Session) Fabric(h Handle) (FabricState, error) {
	var state FabricState
	err := s.with(h, func(g *gpu) error {
		if !g.board.HasFabric() {
			return NotSupported
		}
		state = g.health.Fabric
		return nil
	})
	return state, err
}

// LoseGPU injects the loss of a GPU: every call returns GPUIsLost until the fault is removed or over, or the GPU is reset. It returns the id
// of the fault.
func (n *Node) LoseGPU(ordinal int, until time.Time) (int, error) {
	return n.lose(ordinal, until, false)
}

// RemoveGPU is LoseGPU of a GPU that new sessions do not list.
func (n *Node) RemoveGPU(ordinal int, until time.Time) (int, error) {
	return n.lose(ordinal, until, true)
}

func (n *Node) lose(ordinal int, until time.Time, unlisted bool) (int, error) {
	if ordinal < 0 || ordinal >= len(n.Identities()) {
		return 0, InvalidArgument
	}
	id, err := n.Faults.Add(Fault{Effect: EffectError, GPU: ordinal, Return: GPUIsLost, Until: until, Unlisted: unlisted})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.post(ordinal, Event{Type: EventGPUUnavailable, GPUInstance: NoInstance})
	n.events.wakeAll()
	return id, err
}
