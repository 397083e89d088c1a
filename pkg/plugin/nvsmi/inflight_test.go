package nvsmi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const otherGPU = gpu.UUID("GPU-bbbbbbbb-0000-4000-8000-000000000000")

// stuck is a program that blocks in the kernel for some GPUs and ignores signals.
type stuck struct {
	mu    sync.Mutex
	runs  map[gpu.UUID]int
	hangs map[gpu.UUID]chan struct{}
	// unstarted: it hangs before its process exists.
	unstarted bool
}

func (s *stuck) tool() *Tool {
	return &Tool{
		Find:    func() (Install, error) { return Install{Program: "/usr/bin/nvidia-smi", Root: "/"}, nil },
		Timeout: Timeout, program: s.run,
	}
}

func (s *stuck) run(ctx context.Context, _ Install, args []string, started func(int)) result {
	id := gpu.UUID(args[2])
	s.mu.Lock()
	s.runs[id]++
	pid, hang := 1000+s.runs[id], s.hangs[id]
	s.mu.Unlock()
	if !s.unstarted {
		started(pid)
	}
	if hang != nil {
		<-hang
	}
	if ctx.Err() != nil {
		return result{err: context.Cause(ctx)}
	}
	return result{}
}

// Retries are refused at once until the program has exited, and other GPUs are set.
func TestSetTimeslice_ProgramCannotBeKilled_OneRunPerGPU(t *testing.T) {
	t.Parallel()
	for _, unstarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("unstarted %v", unstarted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				s := &stuck{runs: map[gpu.UUID]int{}, hangs: map[gpu.UUID]chan struct{}{someGPU: hang}, unstarted: unstarted}
				tool := s.tool()
				begin := time.Now()
				err := tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong)
				require.ErrorIs(t, err, gpu.ErrTimeout)
				require.ErrorContains(t, err, "of the plugin's container cannot be killed")
				assert.Equal(t, Timeout+killGrace, time.Since(begin), "the program's timeout and the grace of a killed program")

				pid, says := 1001, "process 1001 of the plugin's container"
				if unstarted {
					pid, says = 0, "not started yet"
				}
				begin = time.Now()
				for range 5 {
					err := tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort)
					require.ErrorIs(t, err, gpu.ErrTimeout)
					running, ok := errors.AsType[*RunningError](err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, pid, running.PID)
					require.EqualError(t, err, "setting the time-slice interval of GPU "+string(someGPU)+" to Short with /usr/bin/nvidia-smi: an earlier run for "+
						"this GPU has not exited ("+says+"): no answer within the deadline; a process that cannot be killed is blocked in the kernel: "+
						"reset the GPU or restart the node")
				}
				require.NoError(t, tool.SetTimeslice(t.Context(), otherGPU, gpu.IntervalShort))
				assert.Zero(t, time.Since(begin), "no call waits")
				assert.Equal(t, map[gpu.UUID]int{someGPU: 1, otherGPU: 1}, s.runs)

				close(hang)
				synctest.Wait()
				require.NoError(t, tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort))
				assert.Equal(t, 2, s.runs[someGPU])
			})
		})
	}
}

// A run stays in flight until the program exits, even after its caller has returned.
func TestSetTimeslice_CallerGone_RunStaysInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &stuck{runs: map[gpu.UUID]int{}, hangs: map[gpu.UUID]chan struct{}{someGPU: hang}}
		tool := s.tool()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tool.SetTimeslice(ctx, someGPU, gpu.IntervalLong) }()
		synctest.Wait()
		_, running := errors.AsType[*RunningError](tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort))
		assert.True(t, running, "a second run is refused while the first is in time, too")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		_, running = errors.AsType[*RunningError](tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort))
		assert.True(t, running)
		require.ErrorIs(t, tool.SetTimeslice(ctx, otherGPU, gpu.IntervalShort), context.Canceled)
		assert.Equal(t, map[gpu.UUID]int{someGPU: 1}, s.runs, "nothing is run with a canceled context")
		close(hang)
	})
}

// The kernel kills the program when the thread that started it exits, so no other goroutine may run on that thread.
func TestRun_Program_StartedOnLockedThread(t *testing.T) {
	t.Parallel()
	tool := scripted(t, "exit 0")
	var header string
	tool.program = func(ctx context.Context, install Install, args []string, started func(int)) result {
		return execute(ctx, install, args, func(pid int) {
			stack := make([]byte, 1<<10)
			header, _, _ = strings.Cut(string(stack[:runtime.Stack(stack, false)]), "\n")
			started(pid)
		})
	}
	require.NoError(t, tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong))
	assert.Contains(t, header, "locked to thread")
}
