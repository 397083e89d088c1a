package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// podClaim is a claim from the view of scheduler and kubelet.
type podClaim struct {
	rc      *resourceapi.ResourceClaim
	devices []string
	// answer is the result of Prepare, nil before and after Unprepare.
	answer *checkpoint.Record
	// boot is the boot of the last Prepare.
	boot string
	// gone: its pod was deleted by force. The scheduler considers its GPUs free; the kubelet will still unprepare it.
	gone bool
}

func (l *podClaim) uid() string { return string(l.rc.UID) }

// processKiller allows a process a number of fault points. The last one takes effect or not; then the process is dead, and each of its
// goroutines ends at its next fault point. Deferred calls that run then only unlock, like the kernel.
type processKiller struct {
	// refuse can make a fault point fail; nil: none fails.
	refuse func(site string) error
	dead   chan struct{}

	mu   sync.Mutex
	left int
	late bool
}

// after kills the process at that fault point from now, 1 being the next; 0: never.
func (k *processKiller) after(faultPoints int, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left, k.late = faultPoints, late
}

// last reports whether this is the last fault point, and whether it takes effect.
func (k *processKiller) last() (last, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left--
	return k.left == 0, k.late
}

func (k *processKiller) faultPoint(site string, effect func() error) error {
	if k.isDead() {
		runtime.Goexit()
	}
	if k.refuse != nil {
		if err := k.refuse(site); err != nil {
			return err
		}
	}
	last, late := k.last()
	if !last {
		return effect()
	}
	if late {
		_ = effect()
	}
	close(k.dead)
	runtime.Goexit()
	return nil
}

func (k *processKiller) isDead() bool {
	select {
	case <-k.dead:
		return true
	default:
		return false
	}
}

// kubelet drives up to two plugin processes on a machine, one call at a time, and checks the invariants after each.
type kubelet struct {
	t         *testing.T
	random    *rand.Rand
	machine   *Machine
	plugins   []*Process
	killers   []*processKiller
	podClaims []*podClaim
	claims    int
	kinds     map[types.UID][]string
	// refuse is the fault for newly started processes.
	refuse func(site string) error
}

// shortTimeout bounds calls that may be refused. Calls for a prepared claim may not.
const shortTimeout = 50 * time.Millisecond

func newKubelet(t *testing.T, seed uint64) *kubelet {
	t.Helper()
	machine, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	k := &kubelet{t: t, random: rand.New(rand.NewPCG(seed, 0)), machine: machine, kinds: map[types.UID][]string{}}
	k.plugins, k.killers = make([]*Process, 2), make([]*processKiller, 2)
	k.start(0)
	k.start(1)
	return k
}

// start replaces a plugin process.
func (k *kubelet) start(i int) {
	k.t.Helper()
	if k.plugins[i] != nil {
		require.NoError(k.t, k.plugins[i].Close())
	}
	k.killers[i] = &processKiller{dead: make(chan struct{})}
	defer func() { k.killers[i].refuse = k.refuse }()
	p, err := k.machine.Start(k.t.Context(), Wiring{
		FaultPoint: k.killers[i].faultPoint, CleanupAfter: time.Minute,
		Effects: k.effects,
	})
	require.NoError(k.t, err)
	require.Empty(k.t, p.Damaged)
	k.plugins[i] = p
}

// effects are planned only for claims with whole GPUs.
func (k *kubelet) effects(rc *resourceapi.ResourceClaim) []string {
	for i := range rc.Status.Allocation.Devices.Results {
		if _, _, cut := partOf(rc.Status.Allocation.Devices.Results[i].Device); cut {
			return nil
		}
	}
	return k.kinds[rc.UID]
}

// call makes a call to one of the processes. The process may be killed in it, and is restarted then; alive reports whether it was not.
func (k *kubelet) call(mayDie bool, do func(p *Process)) (alive bool) {
	k.t.Helper()
	i := k.random.IntN(len(k.plugins))
	processKiller := k.killers[i]
	if mayDie && k.random.IntN(3) == 0 {
		processKiller.after(1+k.random.IntN(24), k.random.IntN(2) == 0)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(k.plugins[i])
	}()
	<-done
	if processKiller.isDead() {
		k.start(i)
		if k.random.IntN(2) == 0 {
			// Recovery runs at once, because a random fault meanwhile would not be reproducible.
			k.killers[i].refuse = nil
			require.NoError(k.t, k.plugins[i].Recover(k.t.Context()))
			k.killers[i].refuse = k.refuse
		}
		return false
	}
	processKiller.after(0, false)
	return true
}

// create creates a claim and allocates it like the scheduler: GPUs that no claim of an existing pod uses.
func (k *kubelet) create() {
	k.claims++
	l := &podClaim{rc: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprintf("claim-%d", k.claims), UID: types.UID(fmt.Sprintf("uid-%d", k.claims)),
	}}}
	k.allocate(l)
	if l.devices == nil {
		return
	}
	k.kinds[l.rc.UID] = AllEffects[:k.random.IntN(len(AllEffects)+1)]
	k.podClaims = append(k.podClaims, l)
}

// allocate allocates one or two GPUs or free parts of them, only the monitor device, or nothing if none is free.
func (k *kubelet) allocate(l *podClaim) {
	gpus := k.machine.Node.Identities()
	l.devices = nil
	for _, i := range k.random.Perm(len(gpus))[:1+k.random.IntN(2)] {
		for _, wanted := range k.ofGPU(i) {
			taken := shared([]string{wanted}, l.devices) || slices.ContainsFunc(k.podClaims, func(other *podClaim) bool {
				return other != l && !other.gone && shared([]string{wanted}, other.devices)
			})
			if !taken {
				l.devices = append(l.devices, wanted)
			}
		}
	}
	if k.random.IntN(4) == 0 {
		l.devices = append(l.devices, monitor)
	}
	if l.devices != nil {
		l.rc = k.machine.allocate(l.rc, l.devices...)
	}
}

// ofGPU returns a whole GPU, or some MIG devices of it that may overlap.
func (k *kubelet) ofGPU(ordinal int) (names []string) {
	if ordinal < 3 || k.random.IntN(3) == 0 {
		return []string{k.machine.device(ordinal)}
	}
	for range 1 + k.random.IntN(3) {
		s := []MIGDevice{small, medium, large, {Profile: profile1g, Start: 5}, {Profile: profile3g, Start: 0}}[k.random.IntN(5)]
		s.GPU = ordinal
		names = append(names, k.machine.migDeviceName(s))
	}
	return names
}

// partOf returns the GPU and the placement of a device; cut is false for a whole GPU; the monitor device belongs to no GPU.
func partOf(device string) (of string, at gpu.Placement, cut bool) {
	parts := strings.Split(device, "-")
	switch {
	case len(parts) == 1:
		return "", at, false
	case len(parts) < 5:
		return parts[1], at, false
	}
	sizes := map[string]int{"19": 1, "14": 2, "9": 4}
	at.Size = sizes[parts[3]]
	_, err := fmt.Sscan(parts[4], &at.Start)
	return parts[1], at, err == nil
}

// prepare calls Prepare until it succeeds or is refused.
func (k *kubelet) prepare(l *podClaim) {
	k.t.Helper()
	var r *checkpoint.Record
	var err error
	for mayDie := true; ; mayDie = false {
		ctx, cancel := k.t.Context(), context.CancelFunc(func() {})
		if k.contended(l) && l.answer == nil {
			ctx, cancel = context.WithTimeout(ctx, shortTimeout)
		}
		alive := k.call(mayDie, func(p *Process) { r, err = p.Prepare(ctx, l.rc) })
		cancel()
		if alive {
			break
		}
	}
	if err != nil && k.refuse != nil {
		return
	}
	if err != nil {
		require.Nil(k.t, l.answer, "claim %s was prepared and is refused now: %v", l.uid(), err)
		require.True(k.t, k.contended(l), "claim %s: %v", l.uid(), err)
		return
	}
	require.Empty(k.t, k.conflictingClaims(l), "claim %s has devices of other claims", l.uid())
	if l.answer != nil && l.boot == k.machine.BootID() { // MIG devices are recreated after a reboot
		require.Empty(k.t, cmp.Diff(l.answer.Results, r.Results, cmp.AllowUnexported(checkpoint.Result{}, checkpoint.MIG{})), "another result for claim %s", l.uid())
		require.Equal(k.t, l.answer.CDI.Devices, r.CDI.Devices)
	}
	l.answer, l.boot = r, k.machine.BootID()
}

// conflictingClaims returns the prepared claims with a GPU of this one.
func (k *kubelet) conflictingClaims(l *podClaim) (rivals []string) {
	for _, other := range k.podClaims {
		if other != l && other.answer != nil && shared(l.devices, other.devices) {
			rivals = append(rivals, other.uid())
		}
	}
	return rivals
}

// contended reports whether another claim uses or used a GPU of this one. Then the pod of one of them was deleted by force.
func (k *kubelet) contended(l *podClaim) bool {
	return slices.ContainsFunc(k.podClaims, func(other *podClaim) bool { return other != l && shared(l.devices, other.devices) })
}

// shared reports whether two claims use the same GPU, or the same part of it.
func shared(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool {
		of, at, cut := partOf(name)
		return of != "" && slices.ContainsFunc(b, func(other string) bool {
			otherOf, otherAt, otherCut := partOf(other)
			return of == otherOf && (!cut || !otherCut || at.Overlaps(otherAt))
		})
	})
}

// unprepare calls Unprepare until it succeeds, and removes the claim.
func (k *kubelet) unprepare(l *podClaim) {
	k.t.Helper()
	l.answer = nil
	for mayDie := true; ; mayDie = false {
		err := errors.New("died")
		k.call(mayDie, func(p *Process) { err = p.Unprepare(k.t.Context(), l.uid()) })
		if err == nil {
			break
		}
		if k.refuse != nil {
			l.gone = true // the kubelet retries
			return
		}
		require.EqualError(k.t, err, "died", "claim %s", l.uid())
	}
	k.podClaims = slices.DeleteFunc(k.podClaims, func(other *podClaim) bool { return other == l })
	_, err := k.machine.Records()
	require.NoError(k.t, err)
}

// reboot restarts the machine and both processes; the kubelet prepares the claims of its pods again.
func (k *kubelet) reboot() {
	k.t.Helper()
	for i := range k.plugins {
		require.NoError(k.t, k.plugins[i].Close())
		k.plugins[i] = nil
	}
	require.NoError(k.t, k.machine.Reboot())
	k.start(0)
	k.start(1)
	for _, l := range k.podClaims {
		if l.answer != nil {
			k.prepare(l)
		}
	}
}

// checkInvariants checks the invariants that hold now.
func (k *kubelet) checkInvariants() {
	k.t.Helper()
	var answered []string
	for _, l := range k.podClaims {
		if l.answer != nil && l.boot == k.machine.BootID() {
			answered = append(answered, l.uid())
		}
	}
	require.NoError(k.t, k.machine.CheckInvariants(k.t.Context(), answered...))
}
