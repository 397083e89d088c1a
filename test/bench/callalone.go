package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/prism-gpu/prism/test/simgpu/layout"
)

// alone is the CPU time in a second of a process that does nothing but the calls of an exporter's rounds, at their pace. Calls that never pause
// find everything in caches, and wake no thread.
func (e *exporterBench) alone(ctx context.Context, calls float64) (time.Duration, error) {
	command := append(e.Caller, strconv.Itoa(len(e.parts)), strconv.Itoa(nearest(calls)))
	other := exec.CommandContext(ctx, command[0], command[1:]...)
	other.Stderr = os.Stderr
	text, err := other.Output()
	if err != nil {
		return 0, fmt.Errorf("calling the driver in another process: %w", err)
	}
	took, err := time.ParseDuration(string(text))
	if err != nil {
		return 0, fmt.Errorf("calling the driver in another process: %w", err)
	}
	return took, nil
}

// CallAlone makes so many calls that only read of each of so many GPUs in a second, and writes how much CPU time that took the process in a
// second. All calls are of the first GPU of the simulated driver.
func CallAlone(ctx context.Context, simgpuRoot string, gpus, calls int, to io.Writer) error {
	install, err := layout.Open(simgpuRoot)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for gpu := range gpus {
		d, err := openDirect(install.Paths)
		if err != nil {
			return err
		}
		defer d.conn.Close()
		go func() {
			pause(ctx, exporterInterval*time.Duration(gpu)/time.Duration(gpus))
			stop(d.rounds(ctx, calls))
		}()
	}
	took, err := ownTime(ctx)
	if err == nil {
		_, err = io.WriteString(to, took.String())
	}
	return err
}

// rounds makes that many calls in each second, one right after the other.
func (d *direct) rounds(ctx context.Context, calls int) error {
	next := time.NewTicker(exporterInterval)
	defer next.Stop()
	for {
		if _, err := repeat(calls, 0, d.read); err != nil {
			return err
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ownTime is the CPU time of this process in a second, as an exporter's is measured.
func ownTime(ctx context.Context) (time.Duration, error) {
	pause(ctx, warmingUp)
	start := time.Now()
	before, err := cpuTime(os.Getpid())
	pause(ctx, sampled)
	after, afterErr := cpuTime(os.Getpid())
	if err := errors.Join(err, afterErr, context.Cause(ctx)); err != nil {
		return 0, err
	}
	return time.Duration(float64(after-before) / time.Since(start).Seconds()), nil
}
