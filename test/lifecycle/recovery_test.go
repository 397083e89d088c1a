package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// claimState is the kubelet's knowledge of a claim when a process was killed.
type claimState struct {
	// prepare is its last Prepare; answered: this one, or an identical one, has succeeded since the process was started.
	prepare  Act
	answered bool
	// leaving: Unprepare was called since. left: it succeeded.
	leaving, left bool
	// recorded: a process of the claim has left a report in its inbox. stored: the store has taken it over.
	recorded, stored bool
	// ranges is the number of recorded ranges; 0: it was not recorded in ranges, and there is one report.
	ranges int
}

// claimStates evaluates the acts before the process was started and the results that it reported.
func claimStates(s *scenario, ended map[int]error) map[string]*claimState {
	claims := map[string]*claimState{}
	for _, act := range s.before {
		claims[act.Claim] = &claimState{prepare: act}
	}
	for _, act := range s.interrupted {
		if act.Call == "prepare" {
			claims[act.Claim] = &claimState{prepare: act}
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
			claims[act.Claim] = &claimState{}
		}
		claims[act.Claim].update(act, end && err == nil)
		cut = cut || !end
		if cut && !act.Beside {
			break
		}
	}
	delete(claims, "") // of acts without a claim
	return claims
}

// sameDevices reports whether both acts request the same devices.
func (a Act) sameDevices(other Act) bool {
	return slices.Equal(a.GPUs, other.GPUs) && a.Monitor == other.Monitor && slices.Equal(a.Counters, other.Counters) &&
		slices.Equal(a.MIGDevices, other.MIGDevices) && slices.Equal(a.Shares, other.Shares) && slices.Equal(a.Null, other.Null) &&
		slices.Equal(a.MPS, other.MPS)
}

// update evaluates one more act, which succeeded, failed or did not return.
func (k *claimState) update(act Act, succeeded bool) {
	switch act.Call {
	case "allocate":
		act.Call = "prepare" // as the kubelet will do
		*k = claimState{prepare: act}
	case "prepare":
		if act.Stale {
			return // it need not be prepared
		}
		k.answered = succeeded || k.answered && k.prepare.sameDevices(act) && !k.leaving
		k.prepare, k.leaving, k.left = act, false, false
	case "delete":
		k.leaving, k.answered = true, false
	case "unprepare":
		k.left = k.left || succeeded // a Prepare between them resets it
		k.leaving, k.answered = true, false
	default:
		k.updateReport(act, succeeded)
	}
}

// updateReport evaluates an act about the report of the claim's process.
func (k *claimState) updateReport(act Act, succeeded bool) {
	switch act.Call {
	case "record":
		k.recorded, k.ranges = k.recorded || succeeded, act.Ranges
	case "answer":
		k.recorded = k.recorded || act.Verb == v1alpha1.SessionStop && succeeded
	case "store":
		k.stored = k.stored || k.recorded && succeeded
	}
}

// recoverAfter is checkRecovery in the machine's time.
func (m *Machine) recoverAfter(t *testing.T, claims map[string]*claimState, wanted, rebooted bool) (err error) {
	t.Helper()
	m.inMachineTime(t, func(t *testing.T) { err = m.checkRecovery(t.Context(), claims, wanted, rebooted) })
	return err
}

// checkRecovery checks the invariants on the state that a process left, and continues like the kubelet: wanted claims are prepared again,
// and all claims are unprepared in the end. rebooted: results are kept, and recreated by Prepare.
func (m *Machine) checkRecovery(ctx context.Context, claims map[string]*claimState, wanted, rebooted bool) error {
	var answered []string
	records, err := m.Records()
	if err != nil {
		return err
	}
	for uid, k := range claims {
		r := records[uid]
		switch {
		case k.left && r != nil && r.State != checkpoint.Releasing: // its cleanup may be pending
			return fmt.Errorf("claim %s: it was unprepared, and its record is in state %s", uid, r.State)
		case k.answered && (r == nil || r.State != checkpoint.Done):
			return fmt.Errorf("claim %s: it was prepared, and its record is not complete", uid)
		case k.answered && !rebooted:
			answered = append(answered, uid)
		}
	}
	if !rebooted {
		err = m.commandsAreWhole(claims)
	}
	if err = errors.Join(err, m.CheckInvariants(ctx, answered...)); err != nil {
		return err
	}
	m.parts.intervals = nil
	p, err := m.Start(ctx, Wiring{Effects: effectsOfKnown(claims)})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	return errors.Join(m.continueAsKubelet(ctx, p, claims, wanted, rebooted), m.checkReports(ctx, p, claims, rebooted), m.CheckEmpty(ctx))
}

func (m *Machine) continueAsKubelet(ctx context.Context, p *Process, claims map[string]*claimState, wanted, rebooted bool) error {
	if err := errors.Join(m.recoverSharing(ctx, p), m.health.recover(ctx, m, p, wanted)); err != nil {
		return err
	}
	if err := m.recoverAndCollect(ctx, p, wanted); err != nil {
		return err
	}
	if err := m.unprepareAll(ctx, p, claims, func(k *claimState) bool { return k.leaving && !k.left || !wanted }); err != nil {
		return err
	}
	if err := m.prepareAgain(ctx, p, claims, wanted); err != nil {
		return err
	}
	again := wanted && !rebooted // a power cut ends the processes
	if err := errors.Join(m.checkWhileAllocated(ctx, p), m.inboxesAreLimited(ctx, p), m.commandsAreKept(ctx, p, claims, again)); err != nil {
		return err
	}
	if err := m.unprepareAll(ctx, p, claims, func(*claimState) bool { return true }); err != nil {
		return err
	}
	if m.layoutChanges {
		if err := p.layout.wait(ctx, releaseSeconds); err != nil {
			return err
		}
	}
	return m.reconcileIntervals(ctx, p, gpu.IntervalDefault)
}

// prepareAgain prepares the wanted claims.
func (m *Machine) prepareAgain(ctx context.Context, p *Process, claims map[string]*claimState, wanted bool) error {
	for uid, k := range claims {
		if k.leaving || !wanted || k.prepare.Call == "" {
			continue
		}
		if err := m.checkSameResult(ctx, p, uid, k); err != nil {
			return fmt.Errorf("preparing %s again: %w", uid, err)
		}
	}
	return nil
}

// checkWhileAllocated checks that a layout does not change under allocated claims.
func (m *Machine) checkWhileAllocated(ctx context.Context, p *Process) error {
	if !m.layoutChanges {
		return nil
	}
	if err := p.layout.wait(ctx, changeSeconds); err != nil {
		return err
	}
	return m.CheckInvariants(ctx)
}

// recoverAndCollect runs the plugin's background work. For wanted claims the kubelet is faster.
func (m *Machine) recoverAndCollect(ctx context.Context, p *Process, wanted bool) error {
	if !wanted {
		if err := errors.Join(p.Recover(ctx), m.checkRecovered()); err != nil {
			return fmt.Errorf("recovering: %w", err)
		}
	}
	if !wanted || m.anyDamaged() {
		if _, err := p.Collector().Collect(ctx, nil, true); err != nil {
			return fmt.Errorf("collecting garbage: %w", err)
		}
	}
	return nil
}

func (m *Machine) unprepareAll(ctx context.Context, p *Process, claims map[string]*claimState, which func(*claimState) bool) error {
	for uid, k := range claims {
		if !which(k) {
			continue
		}
		if err := m.unprepareAndDelete(ctx, p, uid); err != nil {
			return fmt.Errorf("unpreparing %s: %w", uid, err)
		}
	}
	return nil
}

// checkRecovered checks that everything that can be undone is undone.
func (m *Machine) checkRecovered() error {
	records, err := m.Records()
	for uid, r := range records {
		if r.State != checkpoint.Done {
			return fmt.Errorf("claim %s was recovered, and its record is in state %s", uid, r.State)
		}
	}
	return err
}

// checkSameResult prepares a claim again: a prepared claim gets the same result, also if its MIG devices were recreated.
func (m *Machine) checkSameResult(ctx context.Context, p *Process, uid string, k *claimState) error {
	records, err := m.Records()
	if err != nil {
		return err
	}
	rc, err := m.allocateFor(k.prepare)
	if errors.Is(err, errPending) && !k.answered {
		return nil // its pod is pending
	}
	if err != nil {
		return err
	}
	r, err := p.Prepare(ctx, rc)
	if err != nil {
		return err
	}
	if before := records[uid]; k.answered && !slices.Equal(before.CDI.Devices, r.CDI.Devices) {
		return fmt.Errorf("prepared as %v, before as %v", r.CDI.Devices, before.CDI.Devices)
	}
	return m.CheckInvariants(ctx, uid)
}

// effectsOfKnown plans the effects of each claim's last Prepare.
func effectsOfKnown(claims map[string]*claimState) func(*resourceapi.ResourceClaim) []string {
	var acts []Act
	for _, k := range claims {
		if k.prepare.Call != "" {
			acts = append(acts, k.prepare)
		}
	}
	return effectsOf(acts)
}
