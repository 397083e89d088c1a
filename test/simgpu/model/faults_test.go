package model

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFaults_Selectors_MatchCallsAndGPUs(t *testing.T) {
	faults := NewFaults()
	_, err := faults.Add(Fault{Effect: EffectError, GPU: 1, Call: "nvmlDeviceGet*", Return: Timeout})
	require.NoError(t, err)
	tests := []struct {
		call string
		gpu  int
		want error
	}{
		{"nvmlDeviceGetUUID", 1, Timeout},
		{"nvmlDeviceGetUUID", 0, nil},
		{"nvmlDeviceGetUUID", AnyGPU, nil},
		{"nvmlDeviceSetComputeMode", 1, nil},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, faults.Pass(t.Context(), test.call, test.gpu), "%s on %d", test.call, test.gpu)
	}
	assert.Equal(t, 1, faults.List()[0].Hits)
}

func TestFaults_TimesAndUntil_Expire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := NewFaults()
		add := func(f Fault) int {
			id, err := faults.Add(f)
			require.NoError(t, err)
			return id
		}
		pass := func() error { return faults.Pass(t.Context(), "c", AnyGPU) }

		add(Fault{Effect: EffectError, GPU: AnyGPU, Return: Unknown, Times: 2})
		assert.Equal(t, []error{Unknown, Unknown, nil}, []error{pass(), pass(), pass()})

		add(Fault{Effect: EffectError, GPU: AnyGPU, Return: Unknown, Until: time.Now().Add(time.Minute)})
		assert.Equal(t, Unknown, pass())
		time.Sleep(time.Minute)
		require.NoError(t, pass())

		id := add(Fault{Effect: EffectError, GPU: AnyGPU, Return: Unknown})
		assert.Equal(t, Unknown, pass())
		assert.True(t, faults.Remove(id))
		assert.False(t, faults.Remove(id))
		require.NoError(t, pass())
		assert.Empty(t, faults.List())
	})
}

func TestFaults_SlowAndHang_DelayCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := NewFaults()
		_, err := faults.Add(Fault{Effect: EffectSlow, GPU: AnyGPU, Delay: 3 * time.Second, Times: 1})
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, faults.Pass(t.Context(), "c", 0))
		assert.Equal(t, 3*time.Second, time.Since(start))

		_, err = faults.Add(Fault{Effect: EffectHang, GPU: AnyGPU})
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 2)
		go func() { results <- faults.Pass(ctx, "c", 0) }()
		synctest.Wait()
		gone := errors.New("the process is gone")
		cancel(gone)
		require.ErrorIs(t, <-results, gone)

		go func() { results <- faults.Pass(t.Context(), "c", 0) }()
		synctest.Wait()
		assert.Empty(t, results, "a hanging call hangs")
		faults.Clear()
		require.NoError(t, <-results)
	})
}

func TestFaults_HangExpires_CallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := NewFaults()
		_, err := faults.Add(Fault{Effect: EffectHang, GPU: AnyGPU, Until: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, faults.Pass(t.Context(), "c", 0))
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

func TestFaults_Invalid_Refused(t *testing.T) {
	faults := NewFaults()
	for want, fault := range map[string]Fault{
		"needs a return code":           {Effect: EffectError},
		"needs a delay above 0":         {Effect: EffectSlow},
		"supported values: error, hang": {Effect: "explode"},
		`pattern "[" for calls`:         {Effect: EffectHang, Call: "["},
	} {
		_, err := faults.Add(fault)
		require.ErrorContains(t, err, want)
	}
}

func TestEvents_Watched_DeliveredToSets(t *testing.T) {
	node := newNode(t, "h100-80", 2)
	session := open(t, node)
	set, err := session.NewEventSet()
	require.NoError(t, err)
	gpu, err := session.ByIndex(1)
	require.NoError(t, err)
	require.ErrorIs(t, session.Watch(gpu, 1<<40, set), NotSupported)
	require.NoError(t, session.Watch(gpu, EventXID, set))

	require.ErrorIs(t, node.PostXID(7, 79), InvalidArgument)
	require.NoError(t, node.PostXID(0, 48))
	require.NoError(t, node.PostXID(1, 79))
	event, err := session.Wait(t.Context(), set, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, Event{GPU: gpu, Type: EventXID, Data: 79, GPUInstance: NoInstance}, event)
	_, err = session.Wait(t.Context(), set, 0)
	require.ErrorIs(t, err, Timeout)

	other := open(t, node)
	_, err = other.Wait(t.Context(), set, 0)
	require.ErrorIs(t, err, InvalidArgument, "a set belongs to its session")
	require.NoError(t, session.FreeEventSet(set))
	require.ErrorIs(t, session.FreeEventSet(set), InvalidArgument)
}

// A waiting call returns when its GPU, driver, event set or context is gone.
func TestWait_SourceGone_Error(t *testing.T) {
	ends := map[string]struct {
		end  func(*Node, *Session, SetID)
		want error
	}{
		"the GPU":     {func(n *Node, _ *Session, _ SetID) { n.LoseGPU(0, time.Time{}) }, GPUIsLost}, //nolint:errcheck // the wait shows it
		"the driver":  {func(n *Node, _ *Session, _ SetID) { n.Unload() }, DriverNotLoaded},
		"the set":     {func(_ *Node, s *Session, id SetID) { s.FreeEventSet(id) }, InvalidArgument}, //nolint:errcheck // the wait shows it
		"the session": {func(_ *Node, s *Session, _ SetID) { s.Close() }, InvalidArgument},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t, "h100-80", 1)
				session := open(t, node)
				set, err := session.NewEventSet()
				require.NoError(t, err)
				require.NoError(t, session.Watch(handleOf(0), EventXID, set))
				result := make(chan error, 1)
				go func() {
					_, err := session.Wait(t.Context(), set, time.Hour)
					result <- err
				}()
				synctest.Wait()
				test.end(node, session, set)
				require.ErrorIs(t, <-result, test.want)
			})
		})
	}
}

func TestEvents_QueueFull_OldestDropped(t *testing.T) {
	node := newNode(t, "t4", 1)
	session := open(t, node)
	set, err := session.NewEventSet()
	require.NoError(t, err)
	require.NoError(t, session.Watch(handleOf(0), EventXID, set))
	for code := range uint64(maxQueuedEvents + 1) {
		require.NoError(t, node.PostXID(0, code))
	}
	event, err := session.Wait(t.Context(), set, 0)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), event.Data)
}
