package prepare

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// life takes a claim through all its calls in one process.
func life(t *testing.T, p *process) error {
	t.Helper()
	if _, err := p.Prepare(t.Context(), wants("a", device(0), device(1))); err != nil {
		return err
	}
	if _, err := p.Prepare(t.Context(), wants("a", device(0), device(1))); err != nil {
		return err
	}
	return p.Unprepare(t.Context(), "a")
}

// operations counts the fault points of a scenario.
func operations(t *testing.T, steps []string) int {
	t.Helper()
	w := newWorld(2)
	w.steps = steps
	p := w.start(t)
	require.NoError(t, life(t, p))
	return w.ops
}

// afterwards are the ways in which things go on after a process died.
var afterwards = map[string]func(t *testing.T, w *world) *process{
	"the call comes again": func(t *testing.T, w *world) *process { return w.start(t) },
	"the new process recovers": func(t *testing.T, w *world) *process {
		p := w.start(t)
		require.NoError(t, p.Recover(t.Context()))
		if r := w.record(t, "a"); r != nil {
			assert.Equal(t, checkpoint.Done, r.State)
		}
		return p
	},
	"the machine was started again": func(t *testing.T, w *world) *process {
		w.reboot("boot-2")
		return w.start(t)
	},
}

// kinds are claims without effects and with two on each GPU.
var kinds = map[string][]string{"no effects": nil, "two effects": {"mode", "partition"}}

// TestTransaction_KilledAnywhere_NothingLeaks kills the process before and after each operation of a claim's life.
func TestTransaction_KilledAnywhere_NothingLeaks(t *testing.T) {
	for kind, steps := range kinds {
		for after, restart := range afterwards {
			t.Run(kind+", "+after, func(t *testing.T) {
				t.Parallel()
				n := operations(t, steps)
				for at := 1; at <= 2*n; at++ {
					synctest.Test(t, func(t *testing.T) { dieAndGoOn(t, steps, at, restart) })
				}
			})
		}
	}
}

func dieAndGoOn(t *testing.T, steps []string, at int, restart func(*testing.T, *world) *process) {
	t.Helper()
	w := newWorld(2)
	w.steps = steps
	w.dieAt, w.dieLate = (at+1)/2, at%2 == 0
	require.False(t, w.survive(t, func() { _ = life(t, w.start(t)) }))
	w.owned(t)
	where := fmt.Sprintf("died at operation %d, journal %v", at, w.journal)

	p := restart(t, w)
	r := p.mustPrepare(wants("a", device(0), device(1)), where)
	require.Equal(t, w.record(t, "a"), r, where)
	require.NoError(t, whole(w, r), where)
	again := p.mustPrepare(wants("a", device(0), device(1)), where)
	require.Equal(t, r, again, where)
	require.NoError(t, p.Unprepare(t.Context(), "a"), where)
	w.clean(t)
}

// whole returns an error that names the missing parts of an answered claim.
func whole(w *world, r *checkpoint.Record) error {
	if r.State != checkpoint.Done || r.BootID != w.boot {
		return fmt.Errorf("the record is %s of %s", r.State, r.BootID)
	}
	if !(specFiles{w}).Holds(r.Claim.UID, r.CDI.Devices) {
		return errors.New("the spec is missing")
	}
	for _, s := range r.Steps {
		if w.effects[s.Target][s.Kind] != string(s.Args) || string(s.Made) != string(s.Args) {
			return fmt.Errorf("effect %s on %s is missing or not recorded", s.Kind, s.Target)
		}
	}
	return nil
}

// TestTransaction_KilledAnywhere_NoGPUOwnedTwice: after the death the GPUs are wanted by another claim, and the first claim is never used again.
func TestTransaction_KilledAnywhere_NoGPUOwnedTwice(t *testing.T) {
	t.Parallel()
	for kind, steps := range kinds {
		n := operations(t, steps)
		for at := 1; at <= 2*n; at++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(2)
				w.steps = steps
				w.dieAt, w.dieLate = (at+1)/2, at%2 == 0
				w.survive(t, func() { _ = life(t, w.start(t)) })
				p := w.start(t)
				if _, err := p.Prepare(t.Context(), wants("b", device(1))); err != nil {
					heldBy(t, err, "a")
					require.NoError(t, p.Unprepare(t.Context(), "a"))
					p.mustPrepare(wants("b", device(1)))
				}
				for _, s := range w.record(t, "b").Steps {
					require.JSONEq(t, `{"for":"b"}`, w.effects[s.Target][s.Kind], "%s, died at operation %d", kind, at)
				}
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				require.NoError(t, p.Unprepare(t.Context(), "b"))
				w.clean(t)
			})
		}
	}
}

// TestTransaction_ErrorAnywhere_NothingLeaks refuses each operation once, and each from some time on; some are refused although they
// took effect.
func TestTransaction_ErrorAnywhere_NothingLeaks(t *testing.T) {
	for kind, steps := range kinds {
		for _, forEver := range []bool{false, true} {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, for ever %t, late %t", kind, forEver, late), func(t *testing.T) {
					t.Parallel()
					n := operations(t, steps)
					for at := 2; at <= n; at++ { // the first is reading the records, without which nothing starts
						synctest.Test(t, func(t *testing.T) {
							w := newWorld(2)
							w.steps = steps
							refuse := func(string) error {
								if w.ops == at || forEver && w.ops > at {
									return errDisk
								}
								return nil
							}
							if late {
								w.spoil = refuse
							} else {
								w.refuse = refuse
							}
							refuseAndGoOn(t, w, forEver)
						})
					}
				})
			}
		}
	}
}

func refuseAndGoOn(t *testing.T, w *world, forEver bool) {
	t.Helper()
	p := w.start(t)
	_, err := p.Prepare(t.Context(), wants("a", device(0), device(1)))
	w.owned(t)
	if err != nil && !forEver {
		w.clean(t) // a claim that was refused once is taken back at once
	}
	if err == nil {
		require.NoError(t, whole(w, w.record(t, "a")))
		_ = p.Unprepare(t.Context(), "a")
		w.owned(t)
	}
	w.refuse, w.spoil = nil, nil
	if err := p.Unprepare(t.Context(), "a"); err == nil {
		w.clean(t)
	}
	p = w.start(t)
	r := p.mustPrepare(wants("a", device(0), device(1)), "journal %v", w.journal)
	require.NoError(t, whole(w, r), "journal %v", w.journal)
	require.NoError(t, p.Unprepare(t.Context(), "a"))
	w.clean(t)
}
