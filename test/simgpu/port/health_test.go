package port

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

func specOf(board string, driver model.DriverVersion, count int) model.Spec {
	spec := model.Uniform("node-a", board, count)
	spec.Driver = driver
	return spec
}

func (m *machine) session() *Session { return m.partitioner.(*Session) }

func (m *machine) health() gpu.HealthReading {
	return m.session().Health(m.t.Context(), &gpu.GPU{UUID: m.id})
}

func TestHealth_Problems_Read(t *testing.T) {
	t.Parallel()
	none, reset := gpu.RecoveryNone, gpu.RecoveryAction(1)
	for name, test := range map[string]struct {
		spec   model.Spec
		change func(*model.Health)
		want   gpu.HealthReading
	}{
		"healthy":          {specOf("h100-80", "580.95.05", 1), func(*model.Health) {}, gpu.HealthReading{Action: &none, Fabric: gpu.FabricCompleted}},
		"reset":            {specOf("l40s", "565.57.01", 1), func(h *model.Health) { h.Action = 1 }, gpu.HealthReading{Action: &reset}},
		"rows":             {specOf("a30", "560.35.03", 1), func(h *model.Health) { h.RowRemapPending = true }, gpu.HealthReading{RowRemapPending: true}},
		"rows failed":      {specOf("a30", "560.35.03", 1), func(h *model.Health) { h.RowRemapFailure = true }, gpu.HealthReading{RowRemapFailure: true}},
		"pages":            {specOf("t4", "535.183.01", 1), func(h *model.Health) { h.RetirementPending = true }, gpu.HealthReading{RetirementPending: true}},
		"fabric":           {specOf("h100-80", "535.183.01", 1), func(h *model.Health) { h.Fabric = model.FabricNotStarted }, gpu.HealthReading{Fabric: gpu.FabricNotReady}},
		"fabric of no use": {specOf("h100-80", "535.183.01", 1), func(h *model.Health) { h.Fabric = model.FabricNotSupported }, gpu.HealthReading{}},
	} {
		m := newMachine(t, test.spec)
		require.NoError(t, m.node.ChangeHealth(0, test.change))
		test.want.UUID, test.want.Events = m.id, true
		assert.Equal(t, test.want, m.health(), name)
	}
}

func TestHealth_NoAnswer_Errors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		inject func(*model.Node)
		want   error
	}{
		"lost":  {func(n *model.Node) { n.LoseGPU(0, time.Time{}) }, gpu.ErrLost},                                      //nolint:errcheck // the reading shows it
		"hangs": {func(n *model.Node) { n.Faults.Add(model.Fault{Effect: model.EffectHang, GPU: 0}) }, gpu.ErrTimeout}, //nolint:errcheck // the reading shows it
		"fabric": {func(n *model.Node) {
			n.Faults.Add(model.Fault{Effect: model.EffectError, GPU: 0, Call: "nvmlDeviceGetGpuFabricInfoV", Return: model.GPUIsLost}) //nolint:errcheck // the reading shows it
		}, gpu.ErrLost},
		"unloaded": {(*model.Node).Unload, gpu.ErrDriverNotLoaded},
	} {
		m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
		test.inject(m.node)
		require.ErrorIs(t, m.health().Err, test.want, name)
	}
	m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
	_, err := m.node.RemoveGPU(0, time.Time{})
	require.NoError(t, err)
	require.ErrorIs(t, m.health().Err, gpu.ErrLost, "the session has listed it")
	root, err := m.host.FindDriver("")
	require.NoError(t, err)
	later, err := m.host.Open(t.Context(), root)
	require.NoError(t, err)
	require.ErrorIs(t, later.Health(t.Context(), &gpu.GPU{UUID: m.id}).Err, gpu.ErrNotFound)
}

// A poll costs one call, and another one on boards with a fabric.
func TestHealth_Calls_AtMostTwo(t *testing.T) {
	t.Parallel()
	for board, want := range map[string]uint64{"h100-80": 2, "l40s": 1} {
		m := newMachine(t, model.Uniform("node-a", board, 1))
		m.health() // boards without a fabric are asked once
		before := m.node.Calls.Of(os.Getpid()).Total
		m.health()
		assert.Equal(t, want, m.node.Calls.Of(os.Getpid()).Total-before, board)
	}
}

// watched collects the events of a session.
func watched(t *testing.T, m *machine) (next func() []gpu.HealthEvent, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var events []gpu.HealthEvent
	done := make(chan error, 1)
	go func() {
		done <- m.session().WatchHealth(ctx, func(e gpu.HealthEvent) { events = append(events, e) })
	}()
	synctest.Wait()
	return func() []gpu.HealthEvent {
			synctest.Wait()
			defer func() { events = nil }()
			return events
		}, func() error {
			cancel()
			return <-done
		}
}

func TestWatchHealth_Events_Forwarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, model.Uniform("node-a", "h100-80", 2))
		next, end := watched(t, m)
		require.NoError(t, m.node.PostXID(0, 48))
		require.NoError(t, m.node.ChangeHealth(0, func(h *model.Health) { h.Action = 1 }))
		assert.Equal(t, []gpu.HealthEvent{{GPU: m.id, XID: 48}, {GPU: m.id}}, next())
		time.Sleep(2 * eventWait)
		require.NoError(t, m.node.PostXID(0, 13))
		assert.Equal(t, []gpu.HealthEvent{{GPU: m.id, XID: 13}}, next())
		require.NoError(t, end())
	})
}

// Of a lost GPU come its event and an error; the others are watched again after a second, and the lost one once it has returned.
func TestWatchHealth_GPULost_OthersWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, model.Uniform("node-a", "h100-80", 2))
		other := gpu.UUID(m.node.Identities()[1].UUID)
		next, end := watched(t, m)
		_, err := m.node.LoseGPU(0, time.Time{})
		require.NoError(t, err)
		assert.Equal(t, []gpu.HealthEvent{{GPU: m.id}, {}}, next())
		time.Sleep(firstEventPause)
		synctest.Wait()
		require.NoError(t, m.node.PostXID(1, 74))
		assert.Equal(t, []gpu.HealthEvent{{GPU: other, XID: 74}}, next())
		m.node.Faults.Clear()
		time.Sleep(longestEventPause)
		synctest.Wait()
		require.NoError(t, m.node.PostXID(0, 79))
		assert.Equal(t, []gpu.HealthEvent{{GPU: m.id, XID: 79}}, next())
		require.NoError(t, end())
	})
}

func TestWatchHealth_WaitFails_RetriedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
		_, err := m.node.Faults.Add(model.Fault{Effect: model.EffectError, GPU: model.AnyGPU, Call: "nvmlEventSetWait*", Return: model.Unknown})
		require.NoError(t, err)
		next, end := watched(t, m)
		time.Sleep(10 * time.Minute)
		assert.Len(t, next(), 1+5+(600-31)/30, "after 1, 2, 4, 8 and 16 seconds, then each 30")
		m.node.Faults.Clear()
		time.Sleep(longestEventPause)
		next()
		require.NoError(t, m.node.PostXID(0, 48))
		assert.Equal(t, []gpu.HealthEvent{{GPU: m.id, XID: 48}}, next())
		require.NoError(t, end())
	})
}

func TestWatchHealth_SessionClosedOrDriverUnloaded_Ends(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*machine){
		"closed":   func(m *machine) { require.NoError(m.t, m.session().Close()) },
		"unloaded": func(m *machine) { m.node.Unload() },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
			done := make(chan error, 1)
			go func() { done <- m.session().WatchHealth(t.Context(), func(gpu.HealthEvent) {}) }()
			synctest.Wait()
			stop(m)
			require.ErrorIs(t, <-done, gpu.ErrDriverNotLoaded, name)
		})
	}
}

// A closed session makes no calls, and its GPUs can be reset.
func TestClose_Session_Detached(t *testing.T) {
	t.Parallel()
	m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
	require.ErrorIs(t, m.node.ResetDetachedGPU(0), model.InUse)
	require.NoError(t, m.session().Close())
	require.NoError(t, m.session().Close())
	require.NoError(t, m.node.ResetDetachedGPU(0))
	require.ErrorIs(t, m.health().Err, gpu.ErrDriverNotLoaded)
}
