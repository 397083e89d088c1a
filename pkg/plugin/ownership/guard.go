package ownership

import (
	"context"
	"errors"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Records reads the records; checkpoint.Store implements it.
type Records interface {
	// Load returns gpu.ErrNotFound, or checkpoint.ErrDamaged for a record that it has renamed.
	Load(uid string) (*checkpoint.Record, error)
	// All returns the readable records, and one error per renamed, damaged record. checkpoint.ErrUnreadable: some records could not be read.
	All() (records []*checkpoint.Record, damaged []error, err error)
}

// Locks serialises work on claims and on GPUs; checkpoint.Locks implements it.
type Locks interface {
	Claim(ctx context.Context, uid string) (release func(), err error)
	// GPUs takes the locks of all GPUs. Foreign: another process may have changed records of one of them since.
	GPUs(ctx context.Context, uuids []gpu.UUID) (release func(), foreign bool, err error)
}

// Options are the listeners of a Guard; none may block, each may be nil.
type Options struct {
	// Damaged is called with every damaged record that was renamed after New returned.
	Damaged func(err error)
	// PendingCleanups is called with the pending cleanups of failed releases, and the devices of claims of earlier driver names, in the order
	// of the GPUs, whenever they change.
	PendingCleanups func([]gpu.PendingCleanup)
}

// Guard takes the locks of claims and GPUs, and reads the records under them. It is safe for concurrent use.
type Guard struct {
	*Table
	records Records
	locks   Locks
	damaged func(err error)
}

// New reads the records. Damaged and unreadable records are in damaged and not an error.
func New(records Records, locks Locks, options Options) (g *Guard, found []*checkpoint.Record, damaged []error, err error) {
	g = &Guard{Table: newTable(options.PendingCleanups), records: records, locks: locks, damaged: options.Damaged}
	found, damaged, err = records.All()
	for _, r := range found {
		g.Put(r)
	}
	return g, found, damaged, err
}

// UnknownError means that the owners of a GPU are unknown. Its text is for users and names no other claim; the cause, which may name them,
// is for the log.
type UnknownError struct{ Err error }

// Error does not contain the cause.
func (*UnknownError) Error() string {
	return "the claims that hold the GPU cannot be read now; the log of the kubelet plugin on the node contains the reason"
}

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// LockClaim takes the claim's lock, which must be taken before all locks of GPUs. Call release once.
func (g *Guard) LockClaim(ctx context.Context, uid string) (release func(), err error) {
	return g.locks.Claim(ctx, uid)
}

// Lock takes the GPUs' locks and reads the records if another process may have changed them: the Table is correct for these GPUs until
// release. An *UnknownError: the records cannot be read.
func (g *Guard) Lock(ctx context.Context, uuids []gpu.UUID) (release func(), err error) {
	release, err = g.LockOnly(ctx, uuids)
	if err != nil {
		return nil, err
	}
	if err := g.Refresh(uuids); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Refresh reads the records if another process may have changed them: the Table is correct for these GPUs until their locks, which the
// caller holds, are released. An *UnknownError: the records cannot be read.
func (g *Guard) Refresh(uuids []gpu.UUID) error {
	if g.Current(uuids) {
		return nil
	}
	records, err := g.All()
	if err != nil {
		return &UnknownError{Err: err}
	}
	g.Reload(uuids, records)
	return nil
}

// LockOnly takes the GPUs' locks and reads no records, for work that does not depend on other claims. The next Lock or Refresh reads the
// changes of another process.
func (g *Guard) LockOnly(ctx context.Context, uuids []gpu.UUID) (release func(), err error) {
	release, foreign, err := g.locks.GPUs(ctx, uuids)
	if err != nil {
		return nil, err
	}
	if foreign {
		g.Invalidate(uuids)
	}
	return release, nil
}

// Load returns the claim's record, nil if it does not exist. checkpoint.ErrDamaged: it was damaged and is renamed.
func (g *Guard) Load(uid string) (*checkpoint.Record, error) {
	r, err := g.records.Load(uid)
	switch {
	case errors.Is(err, gpu.ErrNotFound):
		return nil, nil
	case errors.Is(err, checkpoint.ErrDamaged):
		g.report(err)
	}
	return r, err
}

// All returns the records in the order of the claims' UIDs. checkpoint.ErrUnreadable: further records exist.
func (g *Guard) All() ([]*checkpoint.Record, error) {
	records, damaged, err := g.records.All()
	g.report(damaged...)
	return records, err
}

// report calls the listener for damaged records.
func (g *Guard) report(damaged ...error) {
	if g.damaged == nil {
		return
	}
	for _, err := range damaged {
		g.damaged(err)
	}
}
