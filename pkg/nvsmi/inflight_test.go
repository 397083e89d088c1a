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

// stuck is a program that waits in the kernel for some GPUs: no signal ends it.
type stuck struct {
	mu    sync.Mutex
	runs  map[gpu.UUID]int
	hangs map[gpu.UUID]chan struct{}
	// unborn: there is no process yet when it hangs.
	unborn bool
}

func (s *stuck) tool() *Tool {
	return &Tool{
		Find:    func() (Install, error) { return Install{Program: "/usr/bin/nvidia-smi", Root: "/"}, nil },
		Timeout: Timeout, program: s.run,
	}
}

func (s *stuck) run(ctx context.Context, _ Install, args []string, started func(int)) ended {
	id := gpu.UUID(args[2])
	s.mu.Lock()
	s.runs[id]++
	pid, hang := 1000+s.runs[id], s.hangs[id]
	s.mu.Unlock()
	if !s.unborn {
		started(pid)
	}
	if hang != nil {
		<-hang
	}
	if ctx.Err() != nil {
		return ended{err: context.Cause(ctx)}
	}
	return ended{}
}

// TestSetTimeslice_ProgramCannotBeKilled_OneRunPerGPU: each retry is refused at once until that one has exited, and other GPUs are set.
func TestSetTimeslice_ProgramCannotBeKilled_OneRunPerGPU(t *testing.T) {
	t.Parallel()
	for _, unborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("unborn %v", unborn), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				s := &stuck{runs: map[gpu.UUID]int{}, hangs: map[gpu.UUID]chan struct{}{someGPU: hang}, unborn: unborn}
				tool := s.tool()
				begin := time.Now()
				err := tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong)
				require.ErrorIs(t, err, gpu.ErrTimeout)
				require.ErrorContains(t, err, "of the plugin's container cannot be killed")
				assert.Equal(t, Timeout+killed, time.Since(begin), "the program's time, and a killed program's")

				pid, says := 1001, "process 1001 of the plugin's container"
				if unborn {
					pid, says = 0, "it was not even started"
				}
				begin = time.Now()
				for range 5 {
					err := tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort)
					require.ErrorIs(t, err, gpu.ErrTimeout)
					running, ok := errors.AsType[*RunningError](err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, pid, running.PID)
					require.EqualError(t, err, "setting the time slices of GPU "+string(someGPU)+" to Short with /usr/bin/nvidia-smi: an earlier run for "+
						"this GPU has not exited ("+says+"): no answer within the deadline; if the process cannot be killed it waits in the kernel: "+
						"reset the GPU, or restart the node")
				}
				require.NoError(t, tool.SetTimeslice(t.Context(), otherGPU, gpu.IntervalShort))
				assert.Zero(t, time.Since(begin), "nobody waits")
				assert.Equal(t, map[gpu.UUID]int{someGPU: 1, otherGPU: 1}, s.runs)

				close(hang)
				synctest.Wait()
				require.NoError(t, tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort))
				assert.Equal(t, 2, s.runs[someGPU])
			})
		})
	}
}

// TestSetTimeslice_CallerGone_RunStaysCounted: it is the program that has to go, not who waits for it.
func TestSetTimeslice_CallerGone_RunStaysCounted(t *testing.T) {
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
		assert.True(t, running, "nor do two run at once that do not hang")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		_, running = errors.AsType[*RunningError](tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalShort))
		assert.True(t, running)
		require.ErrorIs(t, tool.SetTimeslice(ctx, otherGPU, gpu.IntervalShort), context.Canceled)
		assert.Equal(t, map[gpu.UUID]int{someGPU: 1}, s.runs, "nothing is run for a caller that has gone")
		close(hang)
	})
}

// TestRun_ThreadIsItsOwn: the kernel kills the program when the thread that started it ends, so no other goroutine may run on, and end, it.
func TestRun_ThreadIsItsOwn(t *testing.T) {
	t.Parallel()
	tool := scripted(t, "exit 0")
	var header string
	tool.program = func(ctx context.Context, install Install, args []string, started func(int)) ended {
		return execute(ctx, install, args, func(pid int) {
			stack := make([]byte, 1<<10)
			header, _, _ = strings.Cut(string(stack[:runtime.Stack(stack, false)]), "\n")
			started(pid)
		})
	}
	require.NoError(t, tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong))
	assert.Contains(t, header, "locked to thread")
}
