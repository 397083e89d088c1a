//go:build linux

package supervise

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// Reaper collects every process that ends below this one, its own children and the orphans that the kernel hands to pid 1.
// While one runs, exec.Cmd.Wait must not be used: the reaper is faster.
type Reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

// NewReaper starts to reap.
func NewReaper() *Reaper {
	r := &Reaper{waiting: map[int]chan syscall.WaitStatus{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			r.reap()
		}
	}()
	return r
}

// Start starts the command; its status is sent once when it has ended. The lock is held so that a child that ends at once is known
// before it is reaped.
func (r *Reaper) Start(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exit := make(chan syscall.WaitStatus, 1)
	r.waiting[cmd.Process.Pid] = exit
	return exit, cmd.Process.Release()
}

// reap collects all that have ended. One signal can stand for many children.
func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if exit, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			exit <- status
		}
	}
}
