package model

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"
)

// Effect is the effect of a fault on the calls that it matches.
type Effect string

// The effects. Every call on a lost GPU returns GPUIsLost.
const (
	EffectError Effect = "error" // return Fault.Return
	EffectHang  Effect = "hang"  // return when the fault is removed or expired
	EffectSlow  Effect = "slow"  // return Fault.Delay later
)

// AnyGPU in Fault.GPU matches calls on every GPU and on none.
const AnyGPU = -1

// Fault is one injected misbehaviour.
type Fault struct {
	ID     int           `json:"id"`
	Effect Effect        `json:"effect"`
	GPU    int           `json:"gpu"`            // ordinal, or AnyGPU
	Call   string        `json:"call,omitempty"` // name or pattern of path.Match; empty: every call
	Return Return        `json:"return,omitempty"`
	Delay  time.Duration `json:"delay,omitempty"`
	Times  int           `json:"times,omitempty"` // 0: any number of calls
	Until  time.Time     `json:"until,omitzero"`  // zero: until removed
	Hits   int           `json:"hits"`

	Unlisted bool `json:"unlisted,omitempty"` // new sessions do not list the GPU
}

// lost reports whether every call on the GPU returns GPUIsLost.
func (f Fault) lost() bool {
	return f.Effect == EffectError && f.Return == GPUIsLost && f.GPU != AnyGPU && f.Call == ""
}

func (f Fault) check() error {
	switch {
	case f.Effect == EffectError && f.Return == Success:
		return fmt.Errorf("injecting a fault: effect %q needs a return code", f.Effect)
	case f.Effect == EffectSlow && f.Delay <= 0:
		return fmt.Errorf("injecting a fault: effect %q needs a delay above 0", f.Effect)
	case f.Effect != EffectError && f.Effect != EffectSlow && f.Effect != EffectHang:
		return fmt.Errorf("injecting a fault: unknown effect %q; supported values: error, hang, slow", f.Effect)
	}
	if _, err := path.Match(f.Call, ""); err != nil {
		return fmt.Errorf("injecting a fault: pattern %q for calls: %w", f.Call, err)
	}
	return nil
}

func (f Fault) matches(call string, gpu int) bool {
	if f.GPU != AnyGPU && f.GPU != gpu {
		return false
	}
	if f.Call == "" {
		return true
	}
	ok, err := path.Match(f.Call, call)
	return err == nil && ok
}

// Faults are the misbehaviours of a node. The first match in the order of
// injection decides about a call.
type Faults struct {
	mu     sync.Mutex
	now    func() time.Time
	nextID int
	active []*activeFault
}

type activeFault struct {
	Fault
	gone chan struct{} // closed on removal, so that hanging calls return
}

// NewFaults returns a set without faults.
func NewFaults() *Faults { return &Faults{now: time.Now} }

// Add injects a fault and returns its id.
func (fs *Faults) Add(f Fault) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.nextID++
	f.ID, f.Hits = fs.nextID, 0
	fs.active = append(fs.active, &activeFault{Fault: f, gone: make(chan struct{})})
	return f.ID, nil
}

// Remove removes one fault; false when there is none with this id.
func (fs *Faults) Remove(id int) bool {
	return fs.removeWhere(func(f Fault) bool { return f.ID == id }) > 0
}

// Clear removes all faults.
func (fs *Faults) Clear() {
	fs.removeWhere(func(Fault) bool { return true })
}

func (fs *Faults) removeWhere(match func(Fault) bool) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	before := len(fs.active)
	fs.active = slices.DeleteFunc(fs.active, func(f *activeFault) bool {
		if !match(f.Fault) {
			return false
		}
		close(f.gone)
		return true
	})
	return before - len(fs.active)
}

// List lists the active faults.
func (fs *Faults) List() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	list := []Fault{}
	for _, f := range fs.active {
		if !fs.over(f) {
			list = append(list, f.Fault)
		}
	}
	return list
}

// Lost reports whether a fault makes every call on a GPU return GPUIsLost.
func (fs *Faults) Lost(gpu int) bool {
	return slices.ContainsFunc(fs.List(), func(f Fault) bool { return f.lost() && f.GPU == gpu })
}

// Unlisted reports whether new sessions do not list a GPU.
func (fs *Faults) Unlisted(gpu int) bool {
	return slices.ContainsFunc(fs.List(), func(f Fault) bool { return f.Unlisted && f.GPU == gpu })
}

// over reports whether the fault has expired by time or number of calls.
func (fs *Faults) over(f *activeFault) bool {
	return (f.Times > 0 && f.Hits >= f.Times) || (!f.Until.IsZero() && !fs.now().Before(f.Until))
}

// hit returns the first fault that matches, and counts it.
func (fs *Faults) hit(call string, gpu int) *activeFault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.active {
		if fs.over(f) || !f.matches(call, gpu) {
			continue
		}
		f.Hits++
		return f
	}
	return nil
}

// Pass applies the faults to a call: it returns at once, late, or with the code of a fault. It
// returns the cause of ctx when that ends first.
func (fs *Faults) Pass(ctx context.Context, call string, gpu int) error {
	f := fs.hit(call, gpu)
	if f == nil {
		return nil
	}
	switch f.Effect {
	case EffectSlow:
		return fs.wait(ctx, f, f.Delay)
	case EffectHang:
		if f.Until.IsZero() {
			return fs.wait(ctx, f, 0)
		}
		return fs.wait(ctx, f, f.Until.Sub(fs.now()))
	default:
		return f.Return
	}
}

// wait blocks until the fault is gone, d is over (0: never), or ctx ends.
func (fs *Faults) wait(ctx context.Context, f *activeFault, d time.Duration) error {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-f.gone:
		return nil
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
