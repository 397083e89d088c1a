// Package gc removes leaked effects: CDI specs of claims without record, hardware effects that no record of this boot names, and
// files whose writing was interrupted. Each of them is certainly this driver's.
package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

const (
	// BusyAfter is how long the collector waits for a lock. A claim or a GPU that is locked for longer is in use.
	BusyAfter = 5 * time.Second
	// undoTime bounds the undoing of the leaked effects of one GPU.
	undoTime = 20 * time.Second
)

// Unfinished is a directory of files that are written under another name first.
type Unfinished interface {
	// Unfinished lists the claims whose file began to be written; Discard removes the unfinished file and keeps the finished one.
	Unfinished() (uids []string, err error)
	Discard(uid string) error
}

// Records lists the damaged and the unfinished records; checkpoint.Store is the real one.
type Records interface {
	Unfinished
	// SetAside lists the claims with a damaged record.
	SetAside() (uids []string, err error)
}

// Specs lists the CDI specs, also unfinished ones; cdi.Dir is the real one.
type Specs interface {
	Unfinished
	// Claims lists the claims with a spec.
	Claims() (uids []string, err error)
	// Remove is no error when there is nothing to remove.
	Remove(claimUID string) error
}

// Finder is a kind of step whose effects can be found. An effect loses its record when that is damaged and set aside.
type Finder interface {
	// Find returns the effects of this kind that are on the node now and are certainly this driver's, each with its GPU as Target and
	// with the arguments of Undo.
	Find(ctx context.Context) ([]checkpoint.Step, error)
	// Names reports whether a record's step of this kind and GPU, done or only intended, may stand for the effect that was found.
	Names(recorded, found checkpoint.Step) bool
	// Undo removes the effect. An absent effect is no error.
	Undo(ctx context.Context, s checkpoint.Step) error
}

// Finders returns those kinds of steps whose effects can be found.
func Finders[Step any](steps map[string]Step) map[string]Finder {
	finders := map[string]Finder{}
	for kind, step := range steps {
		if finder, can := any(step).(Finder); can {
			finders[kind] = finder
		}
	}
	return finders
}

// Options are the interfaces that a Collector uses.
type Options struct {
	// Guard locks claims and GPUs and reads the records.
	Guard   *ownership.Guard
	Records Records
	Specs   Specs
	// Finders are the kinds of steps whose effects can be found, by name.
	Finders map[string]Finder
	// BootID is the machine's present boot: effects of another one are gone.
	BootID string
}

// Collector removes leaked effects. It is safe for concurrent use with calls for claims.
type Collector struct{ options Options }

// New returns a Collector.
func New(options Options) *Collector { return &Collector{options: options} }

// Collect removes leaked effects and files. The records do not say which pods run on the node, so the caller names the devices that
// containers use, by their names in the driver's CDI specs: their claims keep spec and effects although their record may be lost. Complete:
// the caller has observed the node long enough that no other container can use any. Until then the effects that may belong to a claim with
// a damaged record stay. There is one error for each leak that could not be removed; removed lists the other leaks, in any case.
func (c *Collector) Collect(ctx context.Context, inUse []string, complete bool) (removed []Leak, err error) {
	var damaged []string // claims that may be in use although their record is lost
	if !complete {
		if damaged, err = c.options.Records.SetAside(); err != nil {
			return nil, err
		}
	}
	done := &outcome{}
	files := files{Collector: c, outcome: done}
	files.specs(ctx, inUse, damaged)
	if len(damaged) == 0 { // the claim of an effect is not known
		effects{Collector: c, outcome: done, inUse: inUse}.collect(ctx)
	}
	files.unfinished(ctx, "record", c.options.Records)
	files.unfinished(ctx, "CDI spec", c.options.Specs)
	return done.removed, errors.Join(done.failed...)
}

// outcome lists the leaks that one Collect has removed, and the errors of the rest.
type outcome struct {
	removed []Leak
	failed  []error
}

// fail adds the error of a leak that could not be removed.
func (o *outcome) fail(err error) { o.failed = append(o.failed, err) }

// add records a leak as removed, or its error.
func (o *outcome) add(l Leak, gone bool, err error) {
	switch {
	case err != nil:
		o.fail(fmt.Errorf("removing leaked %s: %w", l, err))
	case gone:
		o.removed = append(o.removed, l)
	}
}

// UnderLock does something under the claim's lock with its record, nil when there is none. A claim that is locked by a call, and one
// whose record only a newer version may act on, is skipped.
func (c *Collector) UnderLock(ctx context.Context, uid string, do func(context.Context, *checkpoint.Record) (gone bool, err error)) (gone bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, BusyAfter)
	defer cancel()
	gone, err = c.locked(waiting, uid, do)
	if busy := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; busy {
		return false, nil
	}
	if _, newer := errors.AsType[*checkpoint.NewerError](err); newer {
		return false, nil
	}
	return gone, err
}

func (c *Collector) locked(ctx context.Context, uid string, do func(context.Context, *checkpoint.Record) (bool, error)) (bool, error) {
	unlock, err := c.options.Guard.LockClaim(ctx, uid)
	if err != nil {
		return false, err
	}
	defer unlock()
	r, err := c.options.Guard.Load(uid)
	if err != nil {
		return false, err
	}
	return do(ctx, r)
}

// inUseBy reports whether a container uses a device of the claim.
func inUseBy(uid string, inUse []string) bool {
	return slices.ContainsFunc(inUse, func(device string) bool { return strings.HasPrefix(device, uid+"-") })
}
