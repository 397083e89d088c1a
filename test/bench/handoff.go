package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// relay is one of two processes that pass the lock of a GPU to and fro, as the plugins of two versions do in a rolling update.
// What they tell each other are points in time on the clock that all processes of a machine share, as 8 bytes.
type relay struct {
	locks *checkpoint.Locks
	inode uint64
	in    io.Reader
	out   io.Writer
	// release lets go of the lock; nil while the other process has it.
	release func()
	samples Samples
}

// relayed is the GPU whose lock is passed.
const relayed gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"

// newRelay opens the lock file in dir.
func newRelay(dir string, in io.Reader, out io.Writer) (*relay, error) {
	locks, err := checkpoint.OpenLocks(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, "locks"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("looking for the lock file: %w", err), locks.Close())
	}
	return &relay{locks: locks, inode: info.Sys().(*syscall.Stat_t).Ino, in: in, out: out}, nil
}

// take waits for the lock.
func (r *relay) take(ctx context.Context) (err error) {
	r.release, _, err = r.locks.GPUs(ctx, []gpu.UUID{relayed})
	return err
}

// takeOver waits for the lock and tells the other process when it came.
func (r *relay) takeOver(ctx context.Context) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	return binary.Write(r.out, binary.LittleEndian, now())
}

// handOver lets go as soon as the other process waits, and notes how long the lock took to get there.
func (r *relay) handOver(ctx context.Context) error {
	if err := r.awaited(ctx); err != nil {
		return err
	}
	start := now()
	r.release()
	var end int64
	if err := binary.Read(r.in, binary.LittleEndian, &end); err != nil {
		return fmt.Errorf("hearing from the other process: %w", err)
	}
	r.samples = append(r.samples, time.Duration(end-start))
	return nil
}

// now is the time since the machine started.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Linux has it
	return t.Nano()
}

// awaited returns when another process waits for the lock.
func (r *relay) awaited(ctx context.Context) error {
	look := time.NewTicker(50 * time.Microsecond)
	defer look.Stop()
	for {
		text, err := os.ReadFile("/proc/locks")
		if err != nil {
			return fmt.Errorf("looking who waits for a lock: %w", err)
		}
		if isAwaited(text, r.inode) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("looking who waits for a lock: nobody does: %w", ctx.Err())
		}
	}
}

// isAwaited tells whether /proc/locks shows somebody who waits for a lock on the file: a line
// "<number>: -> OFDLCK ADVISORY WRITE -1 <major>:<minor>:<inode> <first> <last>".
func isAwaited(locks []byte, inode uint64) bool {
	file := ":" + strconv.FormatUint(inode, 10)
	for line := range bytes.Lines(locks) {
		fields := strings.Fields(string(line))
		if len(fields) > 6 && fields[1] == "->" && strings.HasSuffix(fields[6], file) {
			return true
		}
	}
	return false
}

const (
	handOffs   = 500 // in either direction
	handOffMax = 60 * time.Second
)

// HandOff returns how long the lock of a GPU takes from one process to another. The program is run with dir as its last
// argument and calls Partner.
func HandOff(ctx context.Context, dir string, program ...string) (s Samples, err error) {
	work, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return nil, fmt.Errorf("passing a lock between two processes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	ctx, cancel := context.WithTimeout(ctx, handOffMax)
	defer cancel()
	other := exec.CommandContext(ctx, program[0], append(program[1:], work)...)
	other.Stderr = os.Stderr
	in, err := other.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("passing a lock between two processes: %w", err)
	}
	out, err := other.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("passing a lock between two processes: %w", err)
	}
	r, err := newRelay(work, in, out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.locks.Close()) }()
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	if err := other.Start(); err != nil {
		return nil, fmt.Errorf("passing a lock between two processes: %w", err)
	}
	s, err = r.lead(ctx, handOffs)
	if err != nil {
		cancel() // ends the other process
	}
	if endErr := errors.Join(out.Close(), other.Wait()); endErr != nil || err != nil {
		return nil, fmt.Errorf("passing a lock between two processes: %w", errors.Join(err, endErr))
	}
	return s, nil
}

// lead hands the lock over n times and takes it back as often. It returns the samples of both directions, less the first ones,
// and has let go.
func (r *relay) lead(ctx context.Context, n int) (Samples, error) {
	for range warmUp + n {
		if err := r.handOver(ctx); err != nil {
			return nil, err
		}
		if err := r.takeOver(ctx); err != nil {
			return nil, err
		}
	}
	r.release()
	theirs := make([]int64, warmUp+n)
	if err := binary.Read(r.in, binary.LittleEndian, theirs); err != nil {
		return nil, fmt.Errorf("hearing the times of the other process: %w", err)
	}
	samples := r.samples[warmUp:]
	for _, one := range theirs[warmUp:] {
		samples = append(samples, time.Duration(one))
	}
	return samples, nil
}

// follow is the other end of lead.
func (r *relay) follow(ctx context.Context, n int) error {
	for range warmUp + n {
		if err := r.takeOver(ctx); err != nil {
			return err
		}
		if err := r.handOver(ctx); err != nil {
			return err
		}
	}
	return binary.Write(r.out, binary.LittleEndian, r.samples)
}

// Partner is the other process of HandOff.
func Partner(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	r, err := newRelay(dir, in, out)
	if err != nil {
		return err
	}
	return errors.Join(r.follow(ctx, handOffs), r.locks.Close())
}
