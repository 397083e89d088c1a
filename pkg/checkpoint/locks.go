package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Locks orders the work on claims and GPUs: first come, first served within the process, and mutually exclusive with another plugin process
// on the node. The other process is blocked by open-file-description locks on byte ranges of one file, which the kernel releases when their
// owner dies.
//
// The file's bytes contain a counter per GPU. A process that takes a lock increments it, so that the next one knows whether another process
// may have changed the records of that GPU since it last held the lock.
type Locks struct {
	file *os.File

	mu    sync.Mutex
	slots map[int64]*queue
	seen  map[int64]uint64
}

// queue is the in-process order of one slot. The channel contains one token while the slot is free.
type queue struct {
	token   chan struct{}
	waiting int
}

// A slot is 8 bytes of the file. The regions prevent that a claim shares a slot with a GPU, which would make a claim wait for itself; two
// claims that share a slot merely wait for each other.
const (
	slotBytes   = 8
	leadSlot    = 0
	firstGPU    = 1
	gpuSlots    = 1 << 20
	firstClaim  = firstGPU + gpuSlots
	claimSlots  = 1 << 20
	lockFile    = "locks"
	lockFilePer = 0o600
)

// OpenLocks opens or creates the lock file in dir.
func OpenLocks(dir string) (*Locks, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, lockFilePer)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file %s: %w", path, err)
	}
	return &Locks{file: f, slots: map[int64]*queue{}, seen: map[int64]uint64{}}, nil
}

// Close drops every lock.
func (l *Locks) Close() error { return l.file.Close() }

// Lead waits until no other process on this node holds the lead lock. The process that holds it publishes and reconciles.
func (l *Locks) Lead(ctx context.Context) (release func(), err error) {
	return l.hold(ctx, leadSlot)
}

// TryLead takes the lead lock if no other process of this node holds it; otherwise it returns nil.
func (l *Locks) TryLead() (release func(), err error) { return l.take(leadSlot) }

// Claim waits for the claim's lock. Call release once.
func (l *Locks) Claim(ctx context.Context, uid string) (release func(), err error) {
	release, err = l.hold(ctx, firstClaim+slot(uid, claimSlots))
	if err != nil {
		return nil, fmt.Errorf("waiting for the lock of claim %s: %w", uid, err)
	}
	return release, nil
}

// GPUs waits for the locks of all these GPUs. A call that waits for one of them holds none of the others, unless it was overtaken too
// often: a GPU whose lock is held for a long time delays no call that does not need it. Foreign reports whether another process may have
// changed records of one of them since this process last held its lock. Call release once.
func (l *Locks) GPUs(ctx context.Context, uuids []gpu.UUID) (release func(), foreign bool, err error) {
	var slots []int64
	for _, id := range uuids {
		slots = append(slots, firstGPU+slot(string(id), gpuSlots))
	}
	slices.Sort(slots)
	slots = slices.Compact(slots)
	if len(slots) == 0 {
		return func() {}, false, nil
	}
	release, err = l.all(ctx, slots)
	if err != nil {
		return nil, false, fmt.Errorf("waiting for the locks of GPUs %v: %w", uuids, err)
	}
	for i, s := range slots {
		changed, err := l.raise(s)
		if err != nil {
			l.unsee(slots[:i+1])
			release()
			return nil, false, err
		}
		foreign = foreign || changed
	}
	return release, foreign, nil
}

// backOffs is the number of times that a call releases everything to wait for the one busy slot. After that it waits while it holds the
// others, in the same order in all calls: otherwise two calls for the same slots could give way to each other forever.
const backOffs = 20

// all takes all the slots.
func (l *Locks) all(ctx context.Context, slots []int64) (release func(), err error) {
	first := slots[0]
	for range backOffs {
		release, busy, err := l.around(ctx, first, slots)
		if err != nil {
			return nil, err
		}
		if release != nil {
			return release, nil
		}
		first = busy
	}
	var held releases
	for _, s := range slots {
		r, err := l.hold(ctx, s)
		if err != nil {
			held.release()
			return nil, err
		}
		held = append(held, r)
	}
	return held.release, nil
}

// around waits for the first slot and then takes the others if they are free: otherwise it releases all and returns the busy one.
func (l *Locks) around(ctx context.Context, first int64, slots []int64) (release func(), busy int64, err error) {
	r, err := l.hold(ctx, first)
	if err != nil {
		return nil, 0, err
	}
	held := releases{r}
	for _, s := range slots {
		if s == first {
			continue
		}
		r, err := l.take(s)
		if err != nil || r == nil {
			held.release()
			return nil, s, err
		}
		held = append(held, r)
	}
	return held.release, 0, nil
}

// releases release several slots.
type releases []func()

func (r releases) release() {
	for _, one := range slices.Backward(r) {
		one()
	}
}

// unsee discards the counters of slots whose change was not reported.
func (l *Locks) unsee(slots []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slots {
		delete(l.seen, s)
	}
}

// slot spreads names over n slots.
func slot(name string, n int64) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return int64(h.Sum64() % uint64(n)) //nolint:gosec // n is a small positive constant
}

// hold waits for the slot, first in this process, then against others.
func (l *Locks) hold(ctx context.Context, slot int64) (func(), error) {
	q := l.enter(slot)
	select {
	case <-q.token:
	case <-ctx.Done():
		l.leave(slot, q)
		return nil, ctx.Err()
	}
	unlock, err := l.lockRange(ctx, slot)
	if err == nil && ctx.Err() != nil { // both were ready: the caller has given up
		unlock()
		err = ctx.Err()
	}
	if err != nil {
		q.token <- struct{}{}
		l.leave(slot, q)
		return nil, err
	}
	return l.holding(slot, q, unlock), nil
}

// take takes the slot if it is free now; otherwise it returns nil.
func (l *Locks) take(slot int64) (release func(), err error) {
	q := l.enter(slot)
	select {
	case <-q.token:
	default:
		l.leave(slot, q)
		return nil, nil
	}
	if err := fcntl(l.file, unix.F_OFD_SETLK, unix.F_WRLCK, slot); err != nil {
		q.token <- struct{}{}
		l.leave(slot, q)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, nil
		}
		return nil, fmt.Errorf("locking: %w", err)
	}
	return l.holding(slot, q, func() { _ = fcntl(l.file, unix.F_OFD_SETLK, unix.F_UNLCK, slot) }), nil
}

// holding returns the function that releases a taken slot.
func (l *Locks) holding(slot int64, q *queue, unlock func()) func() {
	return func() {
		unlock()
		q.token <- struct{}{}
		l.leave(slot, q)
	}
}

// enter returns the slot's queue. A channel serves its receivers in the order of their arrival.
func (l *Locks) enter(slot int64) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.slots[slot]
	if q == nil {
		q = &queue{token: make(chan struct{}, 1)}
		q.token <- struct{}{}
		l.slots[slot] = q
	}
	q.waiting++
	return q
}

// leave removes a queue that is not used any more, because the number of claims is not limited over time.
func (l *Locks) leave(slot int64, q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.waiting--
	if q.waiting == 0 {
		delete(l.slots, slot)
	}
}

// lockRange locks the slot's bytes. If another process holds them, a goroutine waits in the kernel, which wakes it without polling; a
// caller that gives up leaves the goroutine behind to release the lock on acquisition.
func (l *Locks) lockRange(ctx context.Context, slot int64) (unlock func(), err error) {
	err = fcntl(l.file, unix.F_OFD_SETLK, unix.F_WRLCK, slot)
	if err == nil {
		return func() { _ = fcntl(l.file, unix.F_OFD_SETLK, unix.F_UNLCK, slot) }, nil
	}
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("locking: %w", err)
	}
	// A separate file: closing it releases the lock, and it may outlive this call.
	waiter, err := os.OpenFile(l.file.Name(), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	got := make(chan error, 1)
	go func() { got <- fcntl(waiter, unix.F_OFD_SETLKW, unix.F_WRLCK, slot) }()
	select {
	case <-ctx.Done():
		go func() { _ = errors.Join(<-got, waiter.Close()) }()
		return nil, ctx.Err()
	case err := <-got:
		if err != nil {
			_ = waiter.Close()
			return nil, fmt.Errorf("locking: %w", err)
		}
		return func() { _ = waiter.Close() }, nil
	}
}

func fcntl(f *os.File, cmd int, kind int16, slot int64) error {
	for {
		err := unix.FcntlFlock(f.Fd(), cmd, &unix.Flock_t{
			Type: kind, Whence: io.SeekStart, Start: slot * slotBytes, Len: slotBytes,
		})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// raise increments the counter and reports whether another process incremented it since this process last did.
func (l *Locks) raise(slot int64) (foreign bool, err error) {
	var b [slotBytes]byte
	if _, err := l.file.ReadAt(b[:], slot*slotBytes); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the lock file: %w", err)
	}
	now := binary.LittleEndian.Uint64(b[:])
	l.mu.Lock()
	last, known := l.seen[slot]
	l.seen[slot] = now + 1
	l.mu.Unlock()
	binary.LittleEndian.PutUint64(b[:], now+1)
	if _, err := l.file.WriteAt(b[:], slot*slotBytes); err != nil {
		return false, fmt.Errorf("writing the lock file: %w", err)
	}
	return !known || last != now, nil
}
