package health

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/fakes"
)

var errBad = errors.New("input/output error")

// after lets time pass and waits until background work is idle.
func after(pass time.Duration) {
	time.Sleep(pass)
	synctest.Wait()
}

func TestConflicts_OtherSockets_FoundAndResolved(t *testing.T) {
	t.Parallel()
	const devicePlugins, otherDRA = "/var/lib/kubelet/device-plugins/", "/var/lib/kubelet/plugins/gpu.nvidia.com/"
	for name, c := range map[string]struct {
		driver, socket string
		want           publish.Conflict
		says           string
	}{
		"a device plugin":     {"gpu.prism.dev", devicePlugins + "nvidia-gpu.sock", publish.ConflictDevicePlugin, "a device plugin allocates them too"},
		"its MIG devices":     {"gpu.prism.dev", devicePlugins + "nvidia-mig-1g.10gb.sock", publish.ConflictDevicePlugin, "a device plugin allocates them too"},
		"GKE's device plugin": {"gpu.prism.dev", devicePlugins + "nvidiaGPU-1763721600.sock", publish.ConflictDevicePlugin, "a device plugin allocates them too"},
		"network cards":       {"gpu.prism.dev", devicePlugins + "nvidia.com_hostdev.sock", "", ""},
		"NVIDIA's driver":     {"gpu.prism.dev", otherDRA + "dra.sock", publish.ConflictDRADriver, "the DRA driver gpu.nvidia.com allocates them too"},
		"our own":             {"gpu.nvidia.com", otherDRA + "dra.sock", "", ""},
		"our own before":      {"gpu.before.dev", otherDRA + "dra.sock", "", ""}, // its earlier name is gpu.nvidia.com
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sockets []string
				var err error
				var set []publish.Conflict
				asked := 0
				see := func(now []string, failure error) {
					mu.Lock()
					defer mu.Unlock()
					sockets, err = now, failure
				}
				written := make(fakes.Events, 16)
				conflicts := &Conflicts{
					Sockets: func(dir, pattern string) ([]string, error) {
						mu.Lock()
						defer mu.Unlock()
						var found []string
						for _, socket := range sockets {
							matches, err := filepath.Match(filepath.Join(dir, pattern), socket)
							assert.NoError(t, err)
							if matches {
								found = append(found, socket)
							}
						}
						return found, err
					},
					KubeletPlugins: "/var/lib/kubelet/plugins", DriverName: c.driver, Former: func(name string) bool { return c.driver == "gpu.before.dev" && name == "gpu.nvidia.com" }, Events: written,
					Set: func(with publish.Conflict, taints bool) {
						mu.Lock()
						defer mu.Unlock()
						assert.Equal(t, with != "", taints, "the end of a conflict says nothing about taints")
						set = append(set, with)
					},
					Taints: func(ctx context.Context) (bool, error) {
						mu.Lock()
						defer mu.Unlock()
						asked++
						return true, ctx.Err()
					},
				}
				stop := fakes.Run(t, func(ctx context.Context) error { return conflicts.Run(ctx) })
				defer stop()
				after(3 * checkInterval)
				assert.Empty(t, set)
				assert.Zero(t, asked)
				assert.NoError(t, conflicts.Withheld())
				see([]string{c.socket}, nil)
				after(3 * checkInterval)
				if c.want == "" {
					assert.Empty(t, set)
					return
				}
				if !assert.Equal(t, []publish.Conflict{c.want}, set) {
					return // no Event is written, and the wait for it would never end
				}
				assert.Equal(t, "Warning AllocationConflict Detect: New claims get no GPU of this node: "+c.says+" ("+c.socket+
					" exists); remove it from the node, or exclude the node from Prism with the chart value kubeletPlugin.affinity", <-written)
				see(nil, errBad)
				after(3 * checkInterval)
				assert.Len(t, set, 1, "sockets that cannot be listed change nothing")
				assert.Error(t, conflicts.Withheld())
				see(nil, nil)
				after(3 * checkInterval)
				assert.Equal(t, []publish.Conflict{c.want, ""}, set)
				assert.Equal(t, "Normal AllocationConflictResolved Detect: No other component allocates the GPUs any more: "+c.socket+" is gone", <-written)
				assert.Empty(t, written)
				assert.NoError(t, conflicts.Withheld())
				assert.Equal(t, 1, asked)
			})
		})
	}
}

// checked is a checker of conflicts with a device plugin, and records its effects.
type checked struct {
	*Conflicts
	events fakes.Events

	mu sync.Mutex
	host
	asked int
	set   []string
}

// host is a state: whether a device plugin runs, and the answer of the API server about taints.
type host struct {
	there bool
	kept  bool
	err   error
}

// is changes the state and lets time pass.
func (s *checked) is(now host, pass time.Duration) {
	s.mu.Lock()
	s.host = now
	s.mu.Unlock()
	after(pass)
}

func newChecked() *checked {
	s := &checked{events: make(fakes.Events, 16)}
	s.Conflicts = &Conflicts{
		Sockets: func(dir, _ string) ([]string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.there && filepath.Base(dir) == "device-plugins" {
				return []string{filepath.Join(dir, "nvidia-gpu.sock")}, nil
			}
			return nil, nil
		},
		KubeletPlugins: "/var/lib/kubelet/plugins", DriverName: "gpu.prism.dev", Events: s.events,
		Taints: func(ctx context.Context) (bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked++
			return s.kept, errors.Join(s.err, ctx.Err())
		},
		Set: func(with publish.Conflict, taints bool) {
			// Claims are refused before anything is published.
			s.set = append(s.set, fmt.Sprintf("%s taints=%t withheld=%t", with, taints, s.Withheld() != nil))
		},
	}
	return s
}

const conflictNote = "Warning AllocationConflict Detect: New claims get no GPU of this node: a device plugin allocates them too (" +
	"/var/lib/kubelet/device-plugins/nvidia-gpu.sock exists); remove it from the node, or exclude the node from Prism with the chart value kubeletPlugin.affinity"

// TestConflicts_TaintsNotStored_DevicesWithdrawn: after an upgrade of the API server, the next conflict taints devices.
func TestConflicts_TaintsNotStored_DevicesWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newChecked()
		defer fakes.Run(t, s.Run)()
		s.is(host{there: true}, 20*checkInterval)
		assert.Equal(t, []string{"device-plugin taints=false withheld=true"}, s.set)
		assert.Equal(t, 1, s.asked, "an answer is not asked for again")
		assert.Equal(t, conflictNote+"; until then the node's ResourceSlices are empty, because the API server stores no device taints "+
			"(feature gate DRADeviceTaints)", <-s.events)
		require.EqualError(t, s.Withheld(), "the GPUs of the node are withheld: a device plugin allocates them too; "+
			"the administrator must remove one of the two from the node (see the Event AllocationConflict of the Node)")

		s.is(host{kept: true}, 3*checkInterval)
		s.is(host{there: true, kept: true}, 3*checkInterval)
		assert.Equal(t, []string{" taints=false withheld=false", "device-plugin taints=true withheld=true"}, s.set[1:])
		assert.Equal(t, 2, s.asked)
		<-s.events
		assert.Equal(t, conflictNote, <-s.events)
	})
}

// TestConflicts_TaintsUnknown_WithdrawnUntilAnswered: an API server that does not answer is asked again at growing intervals.
func TestConflicts_TaintsUnknown_WithdrawnUntilAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newChecked()
		defer fakes.Run(t, s.Run)()
		s.is(host{there: true, kept: true, err: errBad}, time.Hour)
		assert.Equal(t, []string{"device-plugin taints=false withheld=true"}, s.set)
		assert.Less(t, s.asked, 70, "once a minute")
		assert.Equal(t, conflictNote, <-s.events, "why nothing is published is not known")
		s.is(host{there: true, kept: true}, 2*taintsAskMax)
		assert.Equal(t, []string{"device-plugin taints=true withheld=true"}, s.set[1:])
		asked := s.asked
		after(2 * taintsAskMax)
		assert.Equal(t, asked, s.asked)
		assert.Len(t, s.set, 2)

		s.is(host{err: errBad}, 3*checkInterval)
		s.is(host{there: true, err: errBad}, 3*checkInterval)
		s.is(host{err: errBad}, time.Hour)
		assert.Equal(t, " taints=false withheld=false", s.set[len(s.set)-1])
		assert.NoError(t, s.Withheld())
		s.is(host{kept: true}, 2*taintsAskMax)
		assert.Equal(t, " taints=true withheld=false", s.set[len(s.set)-1], "devices may be tainted for another reason")
		asked = s.asked
		after(2 * taintsAskMax)
		assert.Equal(t, asked, s.asked)
	})
}
