package mpsd

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/backoff"
)

// Init is the first process of a container. It starts the service, which is the program with the arguments, restarts it whenever it exits,
// and reaps the control daemons that services leave behind. On SIGTERM it stops the service and returns, without ending control daemons.
func Init(program string, args []string) error {
	// Control daemons of a service that exited become children of this process. In the host's PID namespace it is not PID 1, so this needs
	// a subreaper.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the subreaper of control daemons: %w", err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	i := &initProcess{program: program, args: append(os.Args[:1:1], args...), retry: backoff.Backoff{First: firstRestart, Max: longestRestart}}
	due := time.After(0)
	for stopping := false; !stopping || i.service != 0; {
		select {
		case <-due:
			due = i.start()
		case s := <-signals:
			if s != syscall.SIGCHLD {
				klog.Background().Info("Stopping", "signal", s.String())
				stopping, due = true, nil
				if i.service != 0 {
					_ = syscall.Kill(i.service, syscall.SIGTERM) // it may have exited
				}
			}
			if i.reap() && !stopping {
				due = i.restart()
			}
		}
	}
	return nil
}

// The longest time between two starts is shorter than the time for which clients repeat their requests.
const firstRestart, longestRestart = 50 * time.Millisecond, 2 * time.Second

// initProcess starts the service and reaps processes.
type initProcess struct {
	program string
	args    []string
	retry   backoff.Backoff
	// service is the PID of the service, 0 while it does not run.
	service int
	started time.Time
}

// start starts the service. If that fails, it returns a channel for the time of the next attempt.
func (i *initProcess) start() <-chan time.Time {
	pid, err := syscall.ForkExec(i.program, i.args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		klog.Background().Error(err, "MPS service cannot be started")
		return i.restart()
	}
	i.service, i.started = pid, time.Now()
	return nil
}

// restart returns a channel for the time of the next start of the service.
func (i *initProcess) restart() <-chan time.Time {
	now := time.Now()
	if now.Sub(i.started) > 2*longestRestart {
		i.retry.Reset()
	}
	i.retry.Defer(now)
	return time.After(i.retry.Next().Sub(now))
}

// reap reaps all children that have exited, and reports whether the service was one.
func (i *initProcess) reap() (serviceExited bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return serviceExited
		case pid == i.service:
			i.service, serviceExited = 0, true
			klog.Background().Info("MPS service exited", "pid", pid, "code", status.ExitStatus(), "signal", int(status.Signal()))
		}
	}
}
