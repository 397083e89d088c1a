package prepare

import (
	"context"
	"errors"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// Transaction prepares and unprepares claims. It is safe for concurrent use; calls for different GPUs do not wait for each
// other. A call holds at most one claim's lock, takes it first, and takes the locks of GPUs all at once.
type Transaction struct {
	options   Options
	guard     *ownership.Guard
	answers   answers
	rollback  *rollback
	planning  planning
	preflight preflight
	execution execution
	collector *gc.Collector
}

// New reads the records and returns a Transaction whose ownership table contains their claims. Records that had to be set aside, or cannot
// be read, are in damaged; they do not prevent serving.
func New(ports Ports, options Options) (t *Transaction, damaged []error, err error) {
	guard, records, damaged, err := ownership.New(ports.Records, ports.Locks, ownership.Options{
		Damaged: options.Damaged, PendingCleanups: options.PendingCleanups,
	})
	switch {
	case errors.Is(err, checkpoint.ErrUnreadable):
		damaged = append(damaged, err) // the owners of a GPU are current once all records have been read
	case err != nil:
		return nil, nil, err
	case options.Loaded != nil:
		options.Loaded(records)
	}
	return newTransaction(ports, options, guard), damaged, nil
}

func newTransaction(ports Ports, options Options, guard *ownership.Guard) *Transaction {
	files := extendedSpecs{ports.Specs, ports.Extensions}
	specs := specSource{extendedSpecs: files, steps: ports.Steps}
	static := staticMIG{port: ports.Static, guard: guard}
	cleanup := &cleanup{
		guard: guard, records: ports.Records, specs: files, steps: ports.Steps, bootID: options.BootID, now: options.Now,
	}
	return &Transaction{
		options: options, guard: guard,
		answers: answers{
			guard: guard, keys: ports.Planner, static: static, steps: ports.Steps, specs: specs, bootID: options.BootID,
		},
		rollback:  &rollback{cleanup: cleanup, guard: guard, unable: &sync.Map{}},
		planning:  planning{planner: ports.Planner, static: static, options: options},
		preflight: preflight{static: static, preconditions: ports.Preconditions, steps: ports.Steps},
		execution: execution{guard: guard, records: ports.Records, steps: ports.Steps, specs: specs, cleanup: cleanup},
		collector: gc.New(gc.Options{
			Guard: guard, Records: ports.Records, Specs: files, Finders: gc.Finders(ports.Steps), BootID: options.BootID,
		}),
	}
}

// Counts returns how many claims are prepared here, and how many of the records are pending cleanups.
func (t *Transaction) Counts() (claims, pending int) { return t.guard.Counts() }

// Records returns the records of this node's claims in the order of their UIDs. checkpoint.ErrUnreadable: there are others.
func (t *Transaction) Records() ([]*checkpoint.Record, error) { return t.guard.All() }

// Steps are the kinds of steps that it knows.
func (t *Transaction) Steps() Steps { return t.execution.steps }

// Collector returns the collector of leaked effects, which uses the locks of this Transaction.
func (t *Transaction) Collector() *gc.Collector { return t.collector }

// WithGPULock runs work that belongs to no claim under the lock of a GPU: no work on a claim that uses the GPU is in flight meanwhile, in
// this process or another.
func (t *Transaction) WithGPULock(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
	unlock, err := t.guard.LockOnly(ctx, []gpu.UUID{id})
	if err != nil {
		return err
	}
	defer unlock()
	return do(ctx)
}
