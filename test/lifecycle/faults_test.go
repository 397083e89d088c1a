package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// fault is a kind of failure of fault points.
type fault struct {
	name string
	err  error
	// of selects sites; forEver: all of them fail from one fault point on. Late: the effect has happened nevertheless.
	of            func(site string) bool
	forEver, late bool
}

func anySite(string) bool { return true }

// diskChanges are the sites that require a writable disk.
func diskChanges(site string) bool {
	call, _, _ := strings.Cut(strings.TrimPrefix(site, "disk."), " ")
	return strings.HasPrefix(site, "disk.") && call != "Read" && call != "List" || strings.HasPrefix(site, "hook.")
}

// diskAllocations are the sites that require free space.
func diskAllocations(site string) bool {
	return strings.HasPrefix(site, "disk.Write") || strings.HasPrefix(site, "disk.Create") || strings.HasPrefix(site, "disk.MakeDir") || strings.HasPrefix(site, "hook.")
}

// migChanges are the sites that change MIG modes and instances.
func migChanges(site string) bool {
	call := strings.TrimPrefix(site, "nvml.")
	return strings.HasPrefix(call, "SetMIG") || strings.HasPrefix(call, "Create") || strings.HasPrefix(call, "Destroy")
}

// faultOnce is the name of the fault of one fault point.
const faultOnce = "once"

var faults = []fault{
	{name: faultOnce, err: syscall.EIO, of: anySite},
	{name: "for ever", err: syscall.EIO, of: anySite, forEver: true},
	{name: "takes effect and fails", err: gpu.ErrLost, of: migChanges, late: true},
	{name: "MIG changes fail for ever", err: gpu.ErrLost, of: migChanges, forEver: true},
	{name: "disk full", err: syscall.ENOSPC, of: diskAllocations, forEver: true},
	{name: "read-only disk", err: syscall.EROFS, of: diskChanges, forEver: true},
}

// Each fault point of each scenario fails, once and from then on. Calls may fail; nothing may be lost, and everything recovers when the
// failures end. The race detector, which makes each run several times as long, sees faults that occur once.
func TestScenarios_EveryFaultPointFails_Recovers(t *testing.T) {
	t.Parallel()
	for _, how := range selectedFaults(faults) {
		for _, s := range selectedScenarios() {
			t.Run(how.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				m, err := modelledMachine(t.TempDir(), mixedNode(0))
				require.NoError(t, err)
				refused := m.failEverywhere(t, s, how)
				require.Equal(t, how.applies(s), refused > 0, "%d fault points", refused)
			})
		}
	}
}

// failEverywhere makes the fault points of a scenario fail that belong to the run's share, one in each run, and returns their number.
// Concurrent acts race: all their fault points fail. Faults that occur once hit all fault points too, without the race detector.
func (m *Machine) failEverywhere(t *testing.T, s *scenario, how fault) (refused int) {
	t.Helper()
	run := func(at int) (strata []stratum) {
		m.setUp(t, s)
		if m.parts.mps != nil {
			m.parts.mps.ended = func() bool { return true } // a reconciler that fails has not acted
		}
		m.inMachineTime(t, func(t *testing.T) { strata = m.runWithFault(t, s, how, at) })
		return strata
	}
	part := shareOf(t, s.family)
	if s.races() || how.name == faultOnce && !testing.Short() {
		part = everything
	}
	if part == everything {
		for at := 1; len(run(at)) >= at; at++ {
			refused++
		}
		return refused
	}
	points := run(0)
	for i, chosen := range part.choose(how.name+"/"+s.name, points) {
		if chosen {
			run(i + 1)
		}
	}
	return len(points)
}

// selectedFaults returns the faults of a run: with -short, only the first.
func selectedFaults(all []fault) []fault {
	if testing.Short() {
		return all[:1]
	}
	return all
}

// applies reports whether the scenario has any such site.
func (r fault) applies(s *scenario) bool {
	return !r.of("nvml.SetMIGMode") || r.of("nvml.Open") || slices.ContainsFunc(slices.Concat(s.before, s.acts), func(a Act) bool { return len(a.MIGDevices) > 0 })
}

// hits reports whether the n-th fault point fails if the at-th is the first to fail; 0: none fails.
func (r fault) hits(n, at int) bool { return at > 0 && (n == at || r.forEver && n > at) }

// unsaves reports whether the fault at that site means that a layout may never be saved.
func (r fault) unsaves(site string) bool { return r.forEver && strings.HasSuffix(site, " layout") }

// runWithFault runs a scenario with a failing fault point, 0 being none, and recovers without faults. It returns the fault points of that kind.
func (m *Machine) runWithFault(t *testing.T, s *scenario, how fault, at int) (points []stratum) {
	t.Helper()
	var mu sync.Mutex
	act, site, unsaved := -1, "", false
	m.health.disturb()
	p, err := m.Start(t.Context(), Wiring{
		Effects: effectsOf(s.acts), CallTimeout: shortTimeout, CleanupAfter: time.Minute,
		FaultPoint: func(where string, effect func() error) error {
			mu.Lock()
			if how.of(where) {
				points = append(points, stratum{Act: act, Site: where})
			}
			hit := how.of(where) && how.hits(len(points), at)
			if hit && site == "" {
				site = where
			}
			unsaved = unsaved || hit && how.unsaves(where)
			mu.Unlock()
			if hit && how.late {
				_ = effect()
			}
			if hit {
				return fmt.Errorf("%s: %w", where, how.err)
			}
			return effect()
		},
	})
	ended := map[int]error{}
	if err == nil {
		for i, next := range s.acts {
			mu.Lock()
			act = i
			mu.Unlock()
			ended[i] = m.act(t.Context(), p, next)
		}
		require.NoError(t, p.Close())
	} else {
		ended = nil // the kubelet has made no calls
	}
	if unsaved {
		require.NoError(t, m.updateCluster((*cluster).unsaved))
	}
	require.NoError(t, m.checkRecovery(t.Context(), claimStates(s, ended), at%2 == 0, false), "refused %s", site)
	return points
}

// A transient error of the driver only delays the claim, also if the call took effect.
func TestPrepare_TransientDriverError_Retried(t *testing.T) {
	t.Parallel()
	knobs := []string{"step.Do accounting", "step.Do persistence", "step.Undo persistence", "step.Undo accounting"}
	cuts := []string{
		"nvml.MIGMode", "nvml.SetMIGMode", "nvml.Occupied", "nvml.Instance", "nvml.CreateInstance", "nvml.CreateComputeInstance",
		"nvml.DestroyComputeInstance", "nvml.DestroyInstance",
	}
	for _, site := range slices.Concat(knobs, cuts) {
		for _, cause := range []error{gpu.ErrTimeout, gpu.ErrInUse, gpu.ErrDriverNotLoaded} {
			for _, late := range []bool{false, true} {
				if late && (!errors.Is(cause, gpu.ErrTimeout) || !migChanges(site)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/late=%t", site, cause, late), func(t *testing.T) {
					t.Parallel()
					failOnce(t, site, cause, late)
				})
			}
		}
	}
}

func failOnce(t *testing.T, site string, cause error, late bool) {
	t.Helper()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	left := 1
	p, err := m.Start(t.Context(), Wiring{Effects: withEffects, CleanupAfter: time.Minute, FaultPoint: func(where string, effect func() error) error {
		if where == site && left > 0 {
			left--
			if late {
				_ = effect()
			}
			return cause
		}
		return effect()
	}})
	require.NoError(t, err)
	whole, part := m.allocate(claimNumber(1), m.device(0)), m.allocate(claimNumber(2), m.migDeviceName(large))
	for _, rc := range []*resourceapi.ResourceClaim{whole, part} {
		_, err = p.Prepare(t.Context(), rc)
		require.NoError(t, err)
	}
	require.NoError(t, m.CheckInvariants(t.Context(), "uid-1", "uid-2"))
	for _, rc := range []*resourceapi.ResourceClaim{whole, part} {
		require.NoError(t, p.Unprepare(t.Context(), string(rc.UID)))
	}
	require.Zero(t, left)
	require.NoError(t, p.Close())
	require.NoError(t, m.CheckEmpty(t.Context()))
}
