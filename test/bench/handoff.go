package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	handOffs   = 1000
	handOffMax = 60 * time.Second
	// handOffBudget is for the 99th percentile.
	handOffBudget = 2 * time.Millisecond
	// passed is the GPU whose lock is passed.
	passed gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"
)

// acquired is a lock, and when it was acquired.
type acquired struct {
	release func()
	at      time.Time
	err     error
}

// acquire waits for the lock.
func acquire(ctx context.Context, locks *checkpoint.Locks) (a acquired) {
	a.release, _, a.err = locks.GPUs(ctx, []gpu.UUID{passed})
	a.at = time.Now()
	return a
}

// HandOff returns how long the lock of a GPU takes from one holder to another, n times: from the release until the waiting one has it.
// Each holder opens the lock file in dir for itself; the kernel takes them for two processes, as the plugins of two versions are in a
// rolling update.
func HandOff(ctx context.Context, dir string, n int) (s Samples, err error) {
	ctx, cancel := context.WithTimeout(ctx, handOffMax)
	defer cancel()
	var holders [2]*checkpoint.Locks
	for i := range holders {
		if holders[i], err = checkpoint.OpenLocks(dir); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, holders[i].Close()) }()
	}
	info, err := os.Stat(filepath.Join(dir, "locks"))
	if err != nil {
		return nil, fmt.Errorf("finding the lock file: %w", err)
	}
	now := acquire(ctx, holders[0])
	for i := range warmUp + n {
		if now.err != nil {
			return nil, now.err
		}
		next := make(chan acquired, 1)
		go func() { next <- acquire(ctx, holders[(i+1)%2]) }()
		if err := awaited(ctx, info.Sys().(*syscall.Stat_t).Ino); err != nil {
			return nil, err
		}
		start := time.Now()
		now.release()
		if now = <-next; i >= warmUp {
			s = append(s, now.at.Sub(start))
		}
	}
	if now.err == nil {
		now.release()
	}
	return s, now.err
}

// awaited returns when the lock is waited for.
func awaited(ctx context.Context, inode uint64) error {
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile("/proc/locks")
		if err != nil {
			return fmt.Errorf("reading which locks are waited for: %w", err)
		}
		if isAwaited(text, inode) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("reading which locks are waited for: none is: %w", ctx.Err())
		}
	}
}

// isAwaited reports whether /proc/locks shows that a lock on the file is waited for: a line
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

func (b *bencher) handOff(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(b.pluginsDir(), "bench-")
	if err != nil {
		return fmt.Errorf("making a directory for locks: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	took, err := HandOff(ctx, dir, handOffs)
	budget := Within(handOffBudget)
	budget.Tail = true
	b.report.Add(waits, floorBase, Row{Name: "a GPU's lock passes from one process to another", Samples: took, Budget: budget})
	return err
}
