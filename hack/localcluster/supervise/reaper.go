//go:build linux

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// Reaper collects every process that exits below this one, its own children and the orphan processes that the kernel assigns to pid 1.
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
	// Go keeps these two signals ignored if they were, under nohup or in the background of a script. Started programs would ignore them too,
	// and so would some of their containers, but not all containers of a pod.
	for _, kept := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(kept) {
			signal.Notify(children, kept)
		}
	}
	go func() {
		for range children {
			r.reap()
		}
	}()
	return r
}

// Child is a started process. Its status is sent once when it has exited.
type Child struct {
	PID  int
	Exit <-chan syscall.WaitStatus
}

// Start starts the command. The lock is held so that a child that exits at once is known before it is reaped. The process id is read before
// the release: afterwards os/exec returns -1, which kill(2) interprets as every process.
func (r *Reaper) Start(cmd *exec.Cmd) (Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return Child{}, err
	}
	pid, exit := cmd.Process.Pid, make(chan syscall.WaitStatus, 1)
	r.waiting[pid] = exit
	return Child{PID: pid, Exit: exit}, cmd.Process.Release()
}

// Kill sends a signal to one process. It refuses ids that mean a group or all processes.
func Kill(pid int, signal syscall.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("sending signal %d: %d is not the id of one process", signal, pid)
	}
	return syscall.Kill(pid, signal)
}

// reap collects all exited processes. One signal can stand for many children.
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
