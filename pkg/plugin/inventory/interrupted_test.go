package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// interruptions are the ways in which a caller's context can end during a call into the driver.
var interruptions = map[string]struct {
	begin func(ctx context.Context) (context.Context, func())
	kind  error
}{
	"canceled": {func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel
	}, context.Canceled},
	"canceled for a reason": {func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(ctx)
		return ctx, func() { cancel(errors.New("the pod was deleted")) }
	}, context.Canceled},
	"deadline exceeded": {func(ctx context.Context) (context.Context, func()) {
		return &expiring{Context: ctx, done: make(chan struct{})}, nil
	}, context.DeadlineExceeded},
}

// expiring is a context whose deadline the test controls.
type expiring struct {
	context.Context

	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// interruptDuring returns a context that ends during the first such call into the driver.
func interruptDuring(t *testing.T, m *machine, interruption, call string) context.Context {
	t.Helper()
	ctx, end := interruptions[interruption].begin(t.Context())
	if e, ok := ctx.(*expiring); ok {
		end = func() { close(e.done) }
	}
	m.change(func(m *machine) {
		m.during = func(now string) {
			if now == call {
				end()
				m.change(func(m *machine) { m.during = nil })
			}
		}
	})
	return ctx
}

// TestRefresh_ContextEnds_SessionStays: the plugin is stopped, or a claim's call ends, during a call into the driver. Claims that are being
// prepared keep the driver.
func TestRefresh_ContextEnds_SessionStays(t *testing.T) {
	t.Parallel()
	for interruption, e := range interruptions {
		for _, call := range []string{"Driver", "GPUs"} {
			t.Run(interruption+" in "+call, func(t *testing.T) {
				t.Parallel()
				m := newMachine()
				i := newInventory(m)
				require.NoError(t, i.Refresh(t.Context()))
				view := i.Current()
				require.ErrorIs(t, i.Refresh(interruptDuring(t, m, interruption, call)), e.kind)
				assert.Zero(t, m.closed)
				assert.Same(t, view, i.Current())
				_, err := i.MIGDriver()
				require.NoError(t, err)
				assert.False(t, i.session.(*fakeSession).dead)
				require.NoError(t, i.Refresh(t.Context()))
				assert.Equal(t, 1, m.opened)
			})
		}
	}
}

// TestRefresh_ContextEndsDuringFirst_NextContinues: an open session is neither leaked nor mistaken for a driver that is not loaded.
func TestRefresh_ContextEndsDuringFirst_NextContinues(t *testing.T) {
	t.Parallel()
	for interruption, e := range interruptions {
		for call, opened := range map[string]int{"open": 0, "Driver": 1, "CommonEdits": 1, "GPUs": 1} {
			t.Run(interruption+" in "+call, func(t *testing.T) {
				t.Parallel()
				m := newMachine()
				i := newInventory(m)
				require.ErrorIs(t, i.Refresh(interruptDuring(t, m, interruption, call)), e.kind)
				assert.Equal(t, opened, m.opened)
				assert.Zero(t, m.closed)
				require.ErrorIs(t, i.Current().Err, errNotInspected, "it says nothing about the driver")
				_, err := i.MIGDriver()
				require.ErrorIs(t, err, gpu.ErrDriverNotLoaded, "what was not inspected is not used")

				require.NoError(t, i.Refresh(t.Context()))
				assert.Equal(t, []string{"LIBRARY=580.95.05"}, i.Current().Common.Env)
				assert.Equal(t, 1, m.opened, "one session")
				i.Close()
				assert.Equal(t, 1, m.closed)
			})
		}
	}
}

// answering is a session in which the caller's context ends right after the driver has answered.
type answering struct {
	Session

	end func()
}

func (s answering) Driver(ctx context.Context) (gpu.Driver, error) {
	defer s.end()
	return s.Session.Driver(ctx)
}

// TestRefresh_DriverLeavesAsContextEnds_SessionClosed: the driver's answer counts although the context has ended, too.
func TestRefresh_DriverLeavesAsContextEnds_SessionClosed(t *testing.T) {
	t.Parallel()
	m := newMachine()
	end := func() {}
	i := New(Options{Host: m, Open: func(ctx context.Context, root hostfs.DriverRoot) (Session, error) {
		session, err := m.open(ctx, root)
		return answering{session, func() { end() }}, err
	}})
	require.NoError(t, i.Refresh(t.Context()))
	m.change(func(m *machine) { m.loaded = "" })
	ctx, cancel := context.WithCancel(t.Context())
	end = cancel
	require.ErrorIs(t, i.Refresh(ctx), context.Canceled)
	assert.Equal(t, 1, m.closed)
	_, err := i.MIGDriver()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
}

func TestInterrupted_Errors_OnlyOfContext(t *testing.T) {
	t.Parallel()
	deleted := errors.New("the pod was deleted")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(deleted)
	assert.True(t, interrupted(ended, fmt.Errorf("listing: %w", context.Canceled)))
	assert.True(t, interrupted(ended, fmt.Errorf("listing: %w", deleted)))
	for _, answer := range []error{gpu.ErrDriverNotLoaded, gpu.ErrLost, fmt.Errorf("odd: %w", gpu.ErrNotFound)} {
		assert.False(t, interrupted(ended, answer), "%v", answer)
	}
	assert.False(t, interrupted(t.Context(), context.Canceled), "another context than the caller's")
}

// TestRefresh_AnotherInProgress_HonoursContext: a claim's call does not wait for another inspection beyond its deadline.
func TestRefresh_AnotherInProgress_HonoursContext(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	asked, answer := make(chan struct{}), make(chan struct{})
	m.during = func(call string) {
		if call == "GPUs" {
			close(asked)
			<-answer
		}
	}
	done := make(chan error, 1)
	go func() { done <- i.Refresh(t.Context()) }()
	select {
	case <-asked:
	case <-time.After(waitLimit):
		require.Fail(t, "the first inspection does not begin")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, i.Refresh(ctx), context.Canceled)
	close(answer)
	require.NoError(t, <-done)
	assert.Len(t, i.Current().Node.GPUs, 2)
}
