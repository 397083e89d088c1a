package inventory

import (
	"context"
	"fmt"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// MIGDriver returns the open driver, gpu.ErrDriverNotLoaded if no driver is open. Each call uses the session that is open then.
func (i *Inventory) MIGDriver() (gpu.MIGDriver, error) {
	c := claimCalls{i, "partitioning a GPU"}
	_, err := c.session()
	return c, err
}

// ComputeModes returns the open driver, gpu.ErrDriverNotLoaded if no driver is open. Each call uses the session that is open then.
func (i *Inventory) ComputeModes() (gpu.ComputeModes, error) {
	c := claimCalls{i, "setting the compute mode of a GPU"}
	_, err := c.session()
	return c, err
}

// MemoryLimiter returns the open driver, gpu.ErrDriverNotLoaded if no driver is open. Each call uses the session that is open then.
func (i *Inventory) MemoryLimiter() (gpu.MemoryLimiter, error) {
	c := claimCalls{i, "limiting GPU memory"}
	_, err := c.session()
	return c, err
}

// claimCalls are the calls of claims. The session is not reopened while one runs.
type claimCalls struct {
	inventory *Inventory
	doing     string
}

// session returns the open session.
func (c claimCalls) session() (Session, error) {
	if err := c.inventory.released(); err != nil {
		return nil, err
	}
	session, _ := c.inventory.opened.get()
	if session == nil {
		return nil, fmt.Errorf("%s: %w", c.doing, gpu.ErrDriverNotLoaded)
	}
	return session, nil
}

// during makes a call while no session is closed.
func during[T any](c claimCalls, call func(Session) (T, error)) (T, error) {
	c.inventory.claims.RLock()
	defer c.inventory.claims.RUnlock()
	session, err := c.session()
	if err != nil {
		var none T
		return none, err
	}
	return call(session)
}

// do is during for a call without a result.
func (c claimCalls) do(call func(Session) error) error {
	_, err := during(c, func(s Session) (struct{}, error) { return struct{}{}, call(s) })
	return err
}

// MIGMode makes the call on the open session.
func (c claimCalls) MIGMode(ctx context.Context, id gpu.UUID) (gpu.MIGMode, error) {
	return during(c, func(s Session) (gpu.MIGMode, error) { return s.MIGMode(ctx, id) })
}

// SetMIGMode makes the call on the open session.
func (c claimCalls) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	return c.do(func(s Session) error { return s.SetMIGMode(ctx, id, on) })
}

// Instances makes the call on the open session.
func (c claimCalls) Instances(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error) {
	return during(c, func(s Session) ([]gpu.Instance, error) { return s.Instances(ctx, id) })
}

// Occupied makes the call on the open session.
func (c claimCalls) Occupied(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error) {
	return during(c, func(s Session) ([]gpu.Instance, error) { return s.Occupied(ctx, id) })
}

// Instance makes the call on the open session.
func (c claimCalls) Instance(ctx context.Context, id gpu.UUID, gi int, device gpu.MIGUUID) (*gpu.Instance, error) {
	return during(c, func(s Session) (*gpu.Instance, error) { return s.Instance(ctx, id, gi, device) })
}

// CreateInstance makes the call on the open session.
func (c claimCalls) CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (int, error) {
	return during(c, func(s Session) (int, error) { return s.CreateInstance(ctx, id, profile, at) })
}

// CreateComputeInstance makes the call on the open session.
func (c claimCalls) CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (gpu.ComputeInstance, error) {
	return during(c, func(s Session) (gpu.ComputeInstance, error) { return s.CreateComputeInstance(ctx, id, gi) })
}

// DestroyComputeInstance makes the call on the open session.
func (c claimCalls) DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error {
	return c.do(func(s Session) error { return s.DestroyComputeInstance(ctx, id, gi, ci) })
}

// DestroyInstance makes the call on the open session.
func (c claimCalls) DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error {
	return c.do(func(s Session) error { return s.DestroyInstance(ctx, id, gi) })
}

// ComputeMode makes the call on the open session.
func (c claimCalls) ComputeMode(ctx context.Context, device string) (gpu.ComputeMode, error) {
	return during(c, func(s Session) (gpu.ComputeMode, error) { return s.ComputeMode(ctx, device) })
}

// SetComputeMode makes the call on the open session.
func (c claimCalls) SetComputeMode(ctx context.Context, device string, mode gpu.ComputeMode) error {
	return c.do(func(s Session) error { return s.SetComputeMode(ctx, device, mode) })
}

// MemoryLimits makes the call on the open session.
func (c claimCalls) MemoryLimits(ctx context.Context, id gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	return during(c, func(s Session) (gpu.MemoryLimits, error) { return s.MemoryLimits(ctx, id, cgroup) })
}

// SetMemoryLimits makes the call on the open session.
func (c claimCalls) SetMemoryLimits(ctx context.Context, id gpu.UUID, cgroup string, limits gpu.MemoryLimits) error {
	return c.do(func(s Session) error { return s.SetMemoryLimits(ctx, id, cgroup, limits) })
}
