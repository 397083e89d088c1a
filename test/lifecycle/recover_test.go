package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// known is what the kubelet knows of a claim when a process has died.
type known struct {
	// prepare is its last Prepare; answered tells whether that, or one like it, was answered since the process was started.
	prepare  Act
	answered bool
	// leaving: Unprepare was called since. Left: it succeeded.
	leaving, left bool
}

// learn goes through what was done before the process was started and what it told.
func learn(s *scenario, ended map[int]error) map[string]*known {
	claims := map[string]*known{}
	for _, act := range s.before {
		claims[act.Claim] = &known{prepare: act}
	}
	for _, act := range s.begun {
		if act.Call == "prepare" {
			claims[act.Claim] = &known{prepare: act}
			continue
		}
		claims[act.Claim].leaving = true
	}
	for _, uid := range s.left {
		claims[uid].leaving, claims[uid].left = true, true
	}
	cut := false
	for i, act := range s.acts {
		err, end := ended[i]
		if claims[act.Claim] == nil {
			claims[act.Claim] = &known{}
		}
		claims[act.Claim].learn(act, end && err == nil)
		cut = cut || !end
		if cut && !act.Beside {
			break
		}
	}
	delete(claims, "") // of acts that are about no claim
	return claims
}

// learn takes one more act, which succeeded, or failed, or did not end.
func (k *known) learn(act Act, succeeded bool) {
	switch act.Call {
	case "allocate":
		act.Call = "prepare" // sooner or later
		*k = known{prepare: act}
	case "prepare":
		if act.Stale {
			return // nobody has to prepare it
		}
		same := slices.Equal(k.prepare.GPUs, act.GPUs) && k.prepare.Looks == act.Looks &&
			slices.Equal(k.prepare.Slices, act.Slices) && slices.Equal(k.prepare.Shares, act.Shares)
		k.answered = succeeded || k.answered && same && !k.leaving
		k.prepare, k.leaving, k.left = act, false, false
	case "delete":
		k.leaving, k.answered = true, false
	case "unprepare":
		k.left = k.left || succeeded // a prepare between them resets it
		k.leaving, k.answered = true, false
	}
}

// goesOn is afterDeath in the machine's time.
func (m *Machine) goesOn(t *testing.T, claims map[string]*known, wanted, rebooted bool) (err error) {
	t.Helper()
	m.inTime(t, func(t *testing.T) { err = m.afterDeath(t.Context(), claims, wanted, rebooted) })
	return err
}

// afterDeath checks the laws on what a process left, and goes on as the kubelet would: pods whose claims are wanted prepare
// them again, and all claims are unprepared in the end. Rebooted: what was answered is kept, and made again when asked for.
func (m *Machine) afterDeath(ctx context.Context, claims map[string]*known, wanted, rebooted bool) error {
	var answered []string
	records, err := m.Records()
	if err != nil {
		return err
	}
	for uid, k := range claims {
		r := records[uid]
		switch {
		case k.left && r != nil && r.State != checkpoint.Releasing: // a debt may stay
			return fmt.Errorf("claim %s: it was unprepared, and has a record in state %s", uid, r.State)
		case k.answered && (r == nil || r.State != checkpoint.Done):
			return fmt.Errorf("claim %s: it was answered, and the record does not say so", uid)
		case k.answered && !rebooted:
			answered = append(answered, uid)
		}
	}
	if err := m.Laws(ctx, answered...); err != nil {
		return err
	}
	p, err := m.Start(ctx, Wiring{Effects: effectsOfKnown(claims)})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	return errors.Join(m.goOn(ctx, p, claims, wanted), m.Empty(ctx))
}

func (m *Machine) goOn(ctx context.Context, p *Process, claims map[string]*known, wanted bool) error {
	if err := m.clearUp(ctx, p, wanted); err != nil {
		return err
	}
	if err := m.unprepareAll(ctx, p, claims, func(k *known) bool { return k.leaving && !k.left || !wanted }); err != nil {
		return err
	}
	for uid, k := range claims {
		if k.leaving || !wanted || k.prepare.Call == "" {
			continue
		}
		if err := m.keepsAnswer(ctx, p, uid, k); err != nil {
			return fmt.Errorf("preparing %s again: %w", uid, err)
		}
	}
	if err := m.whileHeld(ctx, p); err != nil {
		return err
	}
	if err := m.unprepareAll(ctx, p, claims, func(*known) bool { return true }); err != nil {
		return err
	}
	if m.offers {
		if err := p.offer.pass(ctx, atLast); err != nil {
			return err
		}
	}
	return m.keep(ctx, p, gpu.IntervalDefault)
}

// whileHeld: what changes does not change under claims.
func (m *Machine) whileHeld(ctx context.Context, p *Process) error {
	if !m.offers {
		return nil
	}
	if err := p.offer.pass(ctx, aWhile); err != nil {
		return err
	}
	return m.Laws(ctx)
}

// clearUp is what a plugin does by itself, sooner or later: where claims are wanted, the kubelet is faster.
func (m *Machine) clearUp(ctx context.Context, p *Process, wanted bool) error {
	if !wanted {
		if err := errors.Join(p.Recover(ctx), m.settled()); err != nil {
			return fmt.Errorf("settling: %w", err)
		}
	}
	if !wanted || m.anyDamaged() {
		if _, err := p.Collector().Collect(ctx, nil, true); err != nil {
			return fmt.Errorf("sweeping: %w", err)
		}
	}
	return nil
}

func (m *Machine) unprepareAll(ctx context.Context, p *Process, claims map[string]*known, which func(*known) bool) error {
	for uid, k := range claims {
		if !which(k) {
			continue
		}
		if err := m.let(ctx, p, uid); err != nil {
			return fmt.Errorf("unpreparing %s: %w", uid, err)
		}
	}
	return nil
}

// settled: what could be undone is undone.
func (m *Machine) settled() error {
	records, err := m.Records()
	for uid, r := range records {
		if r.State != checkpoint.Done {
			return fmt.Errorf("claim %s is settled, and its record is in state %s", uid, r.State)
		}
	}
	return err
}

// keepsAnswer prepares a claim again: an answered one gets the same answer, also where its MIG devices were made again.
func (m *Machine) keepsAnswer(ctx context.Context, p *Process, uid string, k *known) error {
	records, err := m.Records()
	if err != nil {
		return err
	}
	rc, err := m.given(k.prepare)
	if errors.Is(err, errPending) && !k.answered {
		return nil // its pod waits
	}
	if err != nil {
		return err
	}
	r, err := p.Prepare(ctx, rc)
	if err != nil {
		return err
	}
	if before := records[uid]; k.answered && !slices.Equal(before.CDI.Devices, r.CDI.Devices) {
		return fmt.Errorf("answered %v, and %v before", r.CDI.Devices, before.CDI.Devices)
	}
	return m.Laws(ctx, uid)
}

// effectsOfKnown plans what each claim's last Prepare asked for.
func effectsOfKnown(claims map[string]*known) func(*resourceapi.ResourceClaim) []string {
	var acts []Act
	for _, k := range claims {
		if k.prepare.Call != "" {
			acts = append(acts, k.prepare)
		}
	}
	return effectsOf(acts)
}
