package lifecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// owners reports devices with two owners.
type owners struct {
	mu sync.Mutex
	of map[string]string
}

func (o *owners) take(t *testing.T, uid string, devices ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range devices {
		assert.Empty(t, o.of[name], "%s is owned by another claim, and prepared for %s", name, uid)
		o.of[name] = uid
	}
}

func (o *owners) give(devices ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range devices {
		delete(o.of, name)
	}
}

func claimNumber(n int) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprintf("claim-%d", n), UID: types.UID(fmt.Sprintf("uid-%d", n)),
	}}
}

// twoProcesses overlap as in a rolling update.
func twoProcesses(t *testing.T, gpus int, w Wiring) (*Machine, []*Process) {
	t.Helper()
	m, err := NewMachine(t.TempDir(), "l40s", gpus)
	require.NoError(t, err)
	var processes []*Process
	for range 2 {
		p, err := m.Start(t.Context(), w)
		require.NoError(t, err)
		t.Cleanup(func() { _ = p.Close() })
		processes = append(processes, p)
	}
	return m, processes
}

func (m *Machine) devices() (names []string) {
	for _, id := range m.Node.Identities() {
		names = append(names, "gpu-"+id.UUID[4:12])
	}
	return names
}

// Each claim is prepared by both processes at the same time.
func TestPrepare_ManyClaimsTwoProcesses_NoDeviceTwice(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	random := rand.New(rand.NewPCG(1, 0))
	m, processes := twoProcesses(t, 8, Wiring{CallTimeout: 10 * time.Minute, Effects: withEffects})
	free := make(chan string, 8)
	for _, name := range m.devices() {
		free <- name
	}
	o := &owners{of: map[string]string{}}
	var claims sync.WaitGroup
	for n := range 100 {
		rc := claimNumber(n)
		first, last := processes[random.IntN(2)], processes[random.IntN(2)]
		claims.Go(func() {
			device := <-free
			defer func() { free <- device }()
			rc := Allocate(rc, device, monitor)
			var answers [2]*checkpoint.Record
			var twice sync.WaitGroup
			for i, p := range []*Process{processes[0], processes[1]} {
				twice.Go(func() {
					var err error
					answers[i], err = p.Prepare(ctx, rc)
					assert.NoError(t, err)
				})
			}
			twice.Wait()
			if t.Failed() {
				return
			}
			o.take(t, string(rc.UID), device)
			assert.Equal(t, answers[0], answers[1])
			again, err := first.Prepare(ctx, rc)
			assert.NoError(t, err)
			assert.Equal(t, answers[0], again)
			o.give(device)
			assert.NoError(t, last.Unprepare(ctx, string(rc.UID)))
		})
	}
	claims.Wait()
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// Claims of both processes compete for one GPU, and each gets it in the end.
func TestPrepare_ContendedGPU_EveryClaimSucceeds(t *testing.T) {
	t.Parallel()
	m, processes := twoProcesses(t, 1, Wiring{CallTimeout: 10 * time.Minute, Effects: func(*resourceapi.ResourceClaim) []string { return AllEffects }})
	o := &owners{of: map[string]string{}}
	var claims sync.WaitGroup
	for n := range 8 {
		claims.Go(func() {
			rc, p := Allocate(claimNumber(n), m.devices()...), processes[n%2]
			_, err := p.Prepare(t.Context(), rc)
			if !assert.NoError(t, err) {
				return
			}
			o.take(t, string(rc.UID), m.devices()...)
			o.give(m.devices()...)
			assert.NoError(t, p.Unprepare(t.Context(), string(rc.UID)))
		})
	}
	claims.Wait()
	require.NoError(t, m.CheckEmpty(t.Context()))
}
