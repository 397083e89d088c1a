package inventory

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	gpuA = gpu.UUID("GPU-11111111-aaaa")
	gpuB = gpu.UUID("GPU-22222222-bbbb")
)

// polling is an inventory whose polls are recorded.
type polling struct {
	*Inventory

	mu    sync.Mutex
	polls []gpu.HealthPoll
	// before is called by each poll.
	before func()
}

// newPolling returns an inventory with the machine's time, which synctest controls.
func newPolling(m *machine) *polling {
	p := &polling{before: func() {}}
	p.Inventory = New(Options{Host: m, Open: m.open, Polled: func(poll gpu.HealthPoll) {
		p.before()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.polls = append(p.polls, poll)
	}})
	return p
}

// last returns the only poll since the last call, without its time.
func (p *polling) last(t *testing.T) gpu.HealthPoll {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.polls, 1)
	poll := p.polls[0]
	assert.WithinDuration(t, time.Now(), poll.At, time.Hour)
	p.polls, poll.At = nil, time.Time{}
	return poll
}

// refreshed inspects and returns the poll.
func (p *polling) refreshed(t *testing.T) gpu.HealthPoll {
	t.Helper()
	require.NoError(t, p.Refresh(t.Context()))
	return p.last(t)
}

func fine(id gpu.UUID) gpu.HealthReading { return gpu.HealthReading{UUID: id, Events: true} }

// TestRefresh_EachGPU_PolledOnce: and the poll is reported before the view is published.
func TestRefresh_EachGPU_PolledOnce(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.removed = map[string]bool{"/dev/nvidia1": true, "/dev/nvidiactl": true}
	p := newPolling(m)
	p.before = func() { require.Error(t, p.Current().Err) }
	a, b := fine(gpuA), fine(gpuB)
	a.MissingNode, b.MissingNode = "/dev/nvidiactl", "/dev/nvidia1" // each container gets the control nodes
	assert.Equal(t, gpu.HealthPoll{Whole: true, Readings: []gpu.HealthReading{a, b}}, p.refreshed(t))
	assert.ElementsMatch(t, []gpu.UUID{gpuA, gpuB}, m.polled)
	assert.Empty(t, m.asked, "the inspection has just asked whether they answer")
	p.before, m.removed = func() {}, nil
	m.sick[gpuA] = gpu.HealthReading{UUID: gpuA, RowRemapFailure: true}
	assert.Equal(t, m.sick[gpuA], p.refreshed(t).Readings[0])

	m.change(func(m *machine) { m.loaded = "" })
	require.Error(t, p.Refresh(t.Context()))
	gone := p.last(t)
	require.ErrorIs(t, gone.Err, gpu.ErrDriverNotLoaded)
	assert.True(t, gone.Whole)
	assert.Empty(t, gone.Readings)
}

func TestRefresh_DriverLeavesDuringPoll_NoGPUIsSick(t *testing.T) {
	t.Parallel()
	m := newMachine()
	p := newPolling(m)
	m.during = func(call string) {
		if call == "Health" {
			m.change(func(m *machine) { m.loaded = "" })
		}
	}
	require.ErrorIs(t, p.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	poll := p.last(t)
	require.ErrorIs(t, poll.Err, gpu.ErrDriverNotLoaded)
	assert.Empty(t, poll.Readings)
}

func TestRefresh_InterruptedDuringPoll_NothingReported(t *testing.T) {
	t.Parallel()
	m := newMachine()
	p := newPolling(m)
	require.ErrorIs(t, p.Refresh(interruptDuring(t, m, "canceled", "Health")), context.Canceled)
	assert.Empty(t, p.polls)
	require.ErrorIs(t, p.Current().Err, errNotInspected)
}

// TestLostGPU_NotListed_StaysInView although the indices of the others shift, and another GPU has its device node.
func TestLostGPU_NotListed_StaysInView(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.gpus[1].UUID = "GPU-11111111-bbbb" // needs a longer ID
	p := newPolling(m)
	p.refreshed(t)
	before := p.Current().Node.GPUs
	m.change(func(m *machine) {
		other := m.gpus[1]
		other.Index = 0
		m.gpus = []gpu.GPU{other}
	})
	poll := p.refreshed(t)
	now := p.Current().Node
	require.Len(t, now.GPUs, 2)
	assert.Equal(t, []gpu.UUID{"GPU-11111111-bbbb", gpuA}, uuids(p.Current()), "the present one first")
	lost := before[0]
	lost.Lost = true
	assert.Equal(t, lost, now.GPUs[1], "with its ID and facts")
	assert.Equal(t, before[1].ID, now.GPUs[0].ID)
	require.Len(t, now.Faults, 1)
	require.ErrorIs(t, now.Faults[0].Err, gpu.ErrNotFound)
	require.Len(t, poll.Readings, 2)
	require.NoError(t, poll.Readings[0].Err)
	assert.Equal(t, gpuA, poll.Readings[1].UUID)
	require.ErrorIs(t, poll.Readings[1].Err, gpu.ErrNotFound)
	view := p.Current()
	p.refreshed(t)
	assert.Same(t, view, p.Current(), "no news")

	m.change(func(m *machine) { m.gpus[0].Minor = 0 })
	p.refreshed(t)
	assert.Equal(t, gpu.UnknownMinor, p.Current().Node.GPUs[1].Minor)
}

// TestRemember_GPUsOfAnotherProcess_LostUntilTheyAnswer: one is a fault of the driver, the other is not listed.
func TestRemember_GPUsOfAnotherProcess_LostUntilTheyAnswer(t *testing.T) {
	t.Parallel()
	m := newMachine()
	remembered := m.gpus[1]
	remembered.Product.Name = "remembered"
	m.faults[1] = gpu.ErrTimeout
	p := newPolling(m)
	p.Remember([]gpu.GPU{remembered, {UUID: "GPU-33333333-cccc", Index: 7}})
	poll := p.refreshed(t)
	require.Len(t, poll.Readings, 3)
	now := p.Current().Node.GPUs
	require.Len(t, now, 3)
	assert.Equal(t, []bool{false, true, true}, []bool{now[0].Lost, now[1].Lost, now[2].Lost})
	assert.Equal(t, "remembered", now[1].Product.Name)
	require.ErrorIs(t, poll.Readings[2].Err, gpu.ErrNotFound)
	assert.Equal(t, Status{GPUs: 1, Faults: 2, Since: p.Status().Since, Checked: p.Status().Checked}, p.Status())

	m.change(func(m *machine) { delete(m.faults, 1) })
	assert.Equal(t, fine(gpuB), p.refreshed(t).Readings[1])
	assert.Empty(t, p.Current().Node.GPUs[1].Product.Name, "its own facts")
	m.change(func(m *machine) { m.loaded = "" })
	require.Error(t, p.Refresh(t.Context()))
	assert.Empty(t, p.Current().Node.GPUs, "without a driver there is no GPU")
}

// TestRefresh_GPUNeverAnswered_ReadingWithoutFacts: it is not in the view.
func TestRefresh_GPUNeverAnswered_ReadingWithoutFacts(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.faults[0], m.unread = gpu.ErrLost, true
	p := newPolling(m)
	poll := p.refreshed(t)
	assert.Equal(t, []gpu.UUID{gpuB}, uuids(p.Current()))
	assert.Equal(t, []gpu.HealthReading{fine(gpuB), {Err: gpu.ErrLost}}, poll.Readings)
}

func TestCheck_OneGPU_PolledWithoutInspection(t *testing.T) {
	t.Parallel()
	m := newMachine()
	p := newPolling(m)
	p.refreshed(t)
	m.polled = nil
	view := p.Current()
	m.removed = map[string]bool{"/dev/nvidia1": true}
	p.Check(t.Context(), gpuB)
	want := fine(gpuB)
	want.MissingNode = "/dev/nvidia1"
	assert.Equal(t, gpu.HealthPoll{Readings: []gpu.HealthReading{want}}, p.last(t))
	assert.Equal(t, []gpu.UUID{gpuB}, m.asked)
	assert.Equal(t, []gpu.UUID{gpuB}, m.polled)
	m.change(func(m *machine) { m.faults[0] = gpu.ErrTimeout })
	p.Check(t.Context(), gpuA)
	assert.Equal(t, gpu.HealthPoll{Readings: []gpu.HealthReading{{UUID: gpuA, Err: gpu.ErrTimeout}}}, p.last(t))
	assert.Same(t, view, p.Current())

	p.Check(t.Context(), "")
	assert.True(t, p.last(t).Whole)
	assert.True(t, p.Current().Node.GPUs[0].Lost)
	m.change(func(m *machine) { delete(m.faults, 0) })
	p.Check(t.Context(), gpuA)
	assert.Equal(t, gpu.HealthPoll{Whole: true, Readings: []gpu.HealthReading{fine(gpuA), want}}, p.last(t), "only an inspection finds that it is back")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Check(ctx, gpuA)
	assert.Empty(t, p.polls)
	m.change(func(m *machine) { m.loaded = "" })
	p.Check(t.Context(), gpuA)
	require.ErrorIs(t, p.last(t).Err, gpu.ErrDriverNotLoaded)
}

// TestLostGPU_SessionReopened_AfterAMinuteDoubling to 16: after a reset a GPU may answer only a new session.
func TestLostGPU_SessionReopened_AfterAMinuteDoubling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p := newPolling(m)
		var mu sync.Mutex
		var opened []time.Time
		m.during = func(call string) {
			if call == "open" {
				mu.Lock()
				defer mu.Unlock()
				opened = append(opened, time.Now())
			}
		}
		// reopened changes the faults, and returns when the session was opened in the time after the next inspection.
		reopened := func(faults map[int]error, within time.Duration) (after []time.Duration) {
			m.change(func(m *machine) { m.faults = faults })
			begun := time.Now().Add(9500 * time.Millisecond)
			mu.Lock()
			opened = nil
			mu.Unlock()
			time.Sleep(within)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, at := range opened {
				after = append(after, at.Sub(begun).Round(time.Second))
			}
			return after
		}
		minutes := func(numbers ...int) (all []time.Duration) {
			for _, n := range numbers {
				all = append(all, time.Duration(n)*time.Minute)
			}
			return all
		}
		require.NoError(t, p.Refresh(t.Context()))
		go func() { _ = p.Run(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		assert.Empty(t, reopened(nil, time.Hour))
		assert.Equal(t, minutes(1, 3, 7, 15, 31, 47), reopened(map[int]error{0: gpu.ErrLost}, time.Hour))
		assert.Equal(t, minutes(1, 3), reopened(map[int]error{0: gpu.ErrLost, 1: gpu.ErrLost}, 4*time.Minute), "a newly lost GPU")
		assert.Empty(t, reopened(nil, time.Hour))
		m.mu.Lock()
		defer m.mu.Unlock()
		assert.Equal(t, m.opened, m.closed+1)
	})
}

// TestLostGPU_CallsOfClaims_NotInterrupted: nor is a session closed while a call hangs, as the library would stay loaded.
func TestLostGPU_CallsOfClaims_NotInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p := newPolling(m)
		go func() { _ = p.Run(t.Context()) }()
		require.NoError(t, p.Refresh(t.Context()))
		driver, err := p.MIGDriver()
		require.NoError(t, err)
		returns, done := make(chan struct{}), make(chan error, 1)
		m.change(func(m *machine) {
			m.faults[0] = gpu.ErrLost
			m.during = func(call string) {
				if call == "SetMIGMode" {
					<-returns
				}
			}
		})
		go func() { done <- driver.SetMIGMode(t.Context(), gpuB, true) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, m.opened)
		close(returns)
		require.NoError(t, <-done)
		m.change(func(m *machine) { m.faults[1] = gpu.ErrTimeout })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		opened := m.opened
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, opened, m.opened)
		m.change(func(m *machine) { delete(m.faults, 1) })
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Greater(t, m.opened, opened)
		require.NoError(t, driver.SetMIGMode(t.Context(), gpuB, true), "on the new session")
	})
}

// TestWatchHealth_SessionsComeAndGo_EventsOfTheOpenOne: until the context ends.
func TestWatchHealth_SessionsComeAndGo_EventsOfTheOpenOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p := newPolling(m)
		ctx, cancel := context.WithCancel(t.Context())
		received, done := make(chan gpu.HealthEvent, 10), make(chan error, 1)
		go func() { done <- p.WatchHealth(ctx, func(e gpu.HealthEvent) { received <- e }) }()
		synctest.Wait()
		for _, until := range []time.Duration{0, time.Minute, time.Hour} {
			p.Release(time.Now().Add(until))
			time.Sleep(until)
			require.NoError(t, p.Refresh(t.Context()))
			m.events <- gpu.HealthEvent{GPU: gpuA, XID: 79}
			assert.Equal(t, gpu.HealthEvent{GPU: gpuA, XID: 79}, <-received)
		}
		p.Release(time.Now().Add(time.Minute))
		synctest.Wait()
		select {
		case m.events <- gpu.HealthEvent{}:
			assert.Fail(t, "a closed session is not watched")
		default:
		}
		cancel()
		require.NoError(t, <-done)
	})
}
