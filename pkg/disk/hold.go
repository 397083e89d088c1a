package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hold locks the directory until release is called or the process exits. It waits while another process holds the lock. With shared set,
// other processes may hold shared locks at the same time. The lock is advisory: it excludes only processes that call Hold.
func (OS) Hold(dir string, shared bool) (release func(), err error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	return hold(dir, how)
}

// HoldContext is Hold, but returns the context's cause once the context is done. A lock acquired after that is released at once.
func (o OS) HoldContext(ctx context.Context, dir string, shared bool) (release func(), err error) {
	type holding struct {
		release func()
		err     error
	}
	held := make(chan holding, 1)
	go func() {
		release, err := o.Hold(dir, shared)
		held <- holding{release, err}
	}()
	select {
	case h := <-held:
		return h.release, h.err
	case <-ctx.Done():
	}
	go func() {
		if h := <-held; h.err == nil {
			h.release()
		}
	}()
	return nil, fmt.Errorf("waiting to hold %s: %w", dir, context.Cause(ctx))
}

// TryHold locks the directory if no other process holds it now; held reports whether it did.
func (OS) TryHold(dir string) (release func(), held bool, err error) {
	release, err = hold(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return release, err == nil, err
}

func hold(dir string, how int) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("holding %s: %w", dir, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
