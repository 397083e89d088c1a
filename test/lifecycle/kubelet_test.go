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

// life is a claim as scheduler and kubelet see it.
type life struct {
	rc      *resourceapi.ResourceClaim
	devices []string
	// answer is what Prepare returned, nil while it has not, or when the claim was let go of.
	answer *checkpoint.Record
	// boot is the one in which it was answered last.
	boot string
	// gone: its pod was deleted by force. The scheduler takes its GPUs for free; the kubelet will still unprepare it.
	gone bool
}

func (l *life) uid() string { return string(l.rc.UID) }

// killer lets a process touch the machine a number of times. The last touch takes effect or not; then the process is dead, and
// so is each of its goroutines at its next touch. Deferred calls that run then only unlock, as the kernel would.
type killer struct {
	// refuse may refuse a touch; nil refuses none.
	refuse func(site string) error
	dead   chan struct{}

	mu   sync.Mutex
	left int
	late bool
}

// after has the process die at that touch from now, 1 being the next; 0 lets it live.
func (k *killer) after(touches int, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left, k.late = touches, late
}

// last tells whether this is the last touch, and whether it takes effect.
func (k *killer) last() (last, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left--
	return k.left == 0, k.late
}

func (k *killer) touch(site string, effect func() error) error {
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

func (k *killer) isDead() bool {
	select {
	case <-k.dead:
		return true
	default:
		return false
	}
}

// kubelet drives up to two plugin processes on a machine, one call at a time, and checks the laws after each.
type kubelet struct {
	t       *testing.T
	random  *rand.Rand
	machine *Machine
	plugins []*Process
	killers []*killer
	lives   []*life
	claims  int
	kinds   map[types.UID][]string
	// refuse is what the processes that are started get.
	refuse func(site string) error
}

// impatience bounds a call that may have to be refused. One of a claim that was answered may not.
const impatience = 50 * time.Millisecond

func newKubelet(t *testing.T, seed uint64) *kubelet {
	t.Helper()
	machine, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	k := &kubelet{t: t, random: rand.New(rand.NewPCG(seed, 0)), machine: machine, kinds: map[types.UID][]string{}}
	k.plugins, k.killers = make([]*Process, 2), make([]*killer, 2)
	k.start(0)
	k.start(1)
	return k
}

// start starts a plugin in place of the one that was there.
func (k *kubelet) start(i int) {
	k.t.Helper()
	if k.plugins[i] != nil {
		require.NoError(k.t, k.plugins[i].Close())
	}
	k.killers[i] = &killer{dead: make(chan struct{})}
	defer func() { k.killers[i].refuse = k.refuse }()
	p, err := k.machine.Start(k.t.Context(), Wiring{
		Touch: k.killers[i].touch, DebtAfter: time.Minute,
		Effects: k.effects,
	})
	require.NoError(k.t, err)
	require.Empty(k.t, p.Damaged)
	k.plugins[i] = p
}

// effects are for claims that have whole GPUs alone.
func (k *kubelet) effects(rc *resourceapi.ResourceClaim) []string {
	for i := range rc.Status.Allocation.Devices.Results {
		if _, _, cut := partOf(rc.Status.Allocation.Devices.Results[i].Device); cut {
			return nil
		}
	}
	return k.kinds[rc.UID]
}

// call runs something in one of the processes. It may die of it, and is started again then; alive tells whether it lived.
func (k *kubelet) call(mayDie bool, do func(p *Process)) (alive bool) {
	k.t.Helper()
	i := k.random.IntN(len(k.plugins))
	killer := k.killers[i]
	if mayDie && k.random.IntN(3) == 0 {
		killer.after(1+k.random.IntN(24), k.random.IntN(2) == 0)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(k.plugins[i])
	}()
	<-done
	if killer.isDead() {
		k.start(i)
		if k.random.IntN(2) == 0 {
			// Claims are settled at once: refusing one of them at random would not be the same in the next run.
			k.killers[i].refuse = nil
			require.NoError(k.t, k.plugins[i].Recover(k.t.Context()))
			k.killers[i].refuse = k.refuse
		}
		return false
	}
	killer.after(0, false)
	return true
}

// create makes a claim and allocates it as the scheduler does: on GPUs that no claim has whose pod is there.
func (k *kubelet) create() {
	k.claims++
	l := &life{rc: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprintf("claim-%d", k.claims), UID: types.UID(fmt.Sprintf("uid-%d", k.claims)),
	}}}
	k.allocate(l)
	if l.devices == nil {
		return
	}
	k.kinds[l.rc.UID] = AllEffects[:k.random.IntN(len(AllEffects)+1)]
	k.lives = append(k.lives, l)
}

// allocate gives a claim one or two free GPUs, or what is free of them, or only a look at all, or nothing when none is free.
func (k *kubelet) allocate(l *life) {
	gpus := k.machine.Node.Identities()
	l.devices = nil
	for _, i := range k.random.Perm(len(gpus))[:1+k.random.IntN(2)] {
		for _, wanted := range k.ofGPU(i) {
			taken := shared([]string{wanted}, l.devices) || slices.ContainsFunc(k.lives, func(other *life) bool {
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

// ofGPU is a GPU, or some slices of it that may overlap.
func (k *kubelet) ofGPU(ordinal int) (names []string) {
	if ordinal < 3 || k.random.IntN(3) == 0 {
		return []string{k.machine.device(ordinal)}
	}
	for range 1 + k.random.IntN(3) {
		s := []Slice{small, medium, large, {Profile: profile1g, Start: 5}, {Profile: profile3g, Start: 0}}[k.random.IntN(5)]
		s.GPU = ordinal
		names = append(names, k.machine.slice(s))
	}
	return names
}

// partOf tells which GPU and which part of it a device is; the whole of it is not cut, and the monitor is of none.
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

// prepare calls Prepare until it was answered or refused.
func (k *kubelet) prepare(l *life) {
	k.t.Helper()
	var r *checkpoint.Record
	var err error
	for mayDie := true; ; mayDie = false {
		ctx, cancel := k.t.Context(), context.CancelFunc(func() {})
		if k.contended(l) && l.answer == nil {
			ctx, cancel = context.WithTimeout(ctx, impatience)
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
		require.Nil(k.t, l.answer, "claim %s was answered and is refused now: %v", l.uid(), err)
		require.True(k.t, k.contended(l), "claim %s: %v", l.uid(), err)
		return
	}
	require.Empty(k.t, k.rivals(l), "claim %s was given what others have", l.uid())
	if l.answer != nil && l.boot == k.machine.BootID() { // slices are made anew after a boot
		require.Empty(k.t, cmp.Diff(l.answer.Results, r.Results, cmp.AllowUnexported(checkpoint.Result{}, checkpoint.MIG{})), "another answer for claim %s", l.uid())
		require.Equal(k.t, l.answer.CDI.Devices, r.CDI.Devices)
	}
	l.answer, l.boot = r, k.machine.BootID()
}

// rivals are the claims that were answered and have a GPU of this one.
func (k *kubelet) rivals(l *life) (rivals []string) {
	for _, other := range k.lives {
		if other != l && other.answer != nil && shared(l.devices, other.devices) {
			rivals = append(rivals, other.uid())
		}
	}
	return rivals
}

// contended tells whether another claim, one of them of a pod deleted by force, has or had a GPU of this one.
func (k *kubelet) contended(l *life) bool {
	return slices.ContainsFunc(k.lives, func(other *life) bool { return other != l && shared(l.devices, other.devices) })
}

// shared tells whether two claims own the same GPU, or the same part of it.
func shared(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool {
		of, at, cut := partOf(name)
		return of != "" && slices.ContainsFunc(b, func(other string) bool {
			otherOf, otherAt, otherCut := partOf(other)
			return of == otherOf && (!cut || !otherCut || at.Overlaps(otherAt))
		})
	})
}

// unprepare calls Unprepare until it succeeds, and forgets the claim.
func (k *kubelet) unprepare(l *life) {
	k.t.Helper()
	l.answer = nil
	for mayDie := true; ; mayDie = false {
		err := errors.New("died")
		k.call(mayDie, func(p *Process) { err = p.Unprepare(k.t.Context(), l.uid()) })
		if err == nil {
			break
		}
		if k.refuse != nil {
			l.gone = true // the kubelet comes again
			return
		}
		require.EqualError(k.t, err, "died", "claim %s", l.uid())
	}
	k.lives = slices.DeleteFunc(k.lives, func(other *life) bool { return other == l })
	_, err := k.machine.Records()
	require.NoError(k.t, err)
}

// reboot starts the machine and both processes again; the kubelet's pods come back with their claims.
func (k *kubelet) reboot() {
	k.t.Helper()
	for i := range k.plugins {
		require.NoError(k.t, k.plugins[i].Close())
		k.plugins[i] = nil
	}
	require.NoError(k.t, k.machine.Reboot())
	k.start(0)
	k.start(1)
	for _, l := range k.lives {
		if l.answer != nil {
			k.prepare(l)
		}
	}
}

// laws checks what must hold now.
func (k *kubelet) laws() {
	k.t.Helper()
	var answered []string
	for _, l := range k.lives {
		if l.answer != nil && l.boot == k.machine.BootID() {
			answered = append(answered, l.uid())
		}
	}
	require.NoError(k.t, k.machine.Laws(k.t.Context(), answered...))
}
