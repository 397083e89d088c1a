//go:build linux

// Package supervise is the first process of a pid namespace: it starts programs, restarts them, reaps their children and accepts orders
// over a unix socket. When it is killed, everything that it started is killed with it.
package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is the time for a program to exit after SIGTERM.
	stopGrace = 5 * time.Second
	// startLimit is the time for a program to answer its probe.
	startLimit = 5 * time.Minute
	// restartPause is the time between an unexpected exit and the next start.
	restartPause = time.Second
)

// Service is one program under supervision.
type Service struct {
	Name string `json:"name"`
	// Args is the command line; the first is an absolute path.
	Args []string `json:"args"`
	// Log is the file to which its output is appended.
	Log   string `json:"log"`
	Probe Probe  `json:"probe"`
}

// Status is the current state of a service.
type Status struct {
	Name string `json:"name"`
	// PID is the process id in the supervisor's namespace, 0 if it does not run.
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	// Note is the reason why it does not run.
	Note string `json:"note,omitempty"`
}

// unit is a service and its process.
type unit struct {
	Service
	env    []string
	reaper *Reaper

	mu     sync.Mutex
	wanted bool
	pid    int
	since  time.Time
	ended  chan struct{} // closed when the current process has exited
	note   string
}

func (u *unit) status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Status{Name: u.Name, PID: u.pid, Since: u.since, Note: u.note}
}

// start launches the program unless it runs.
func (u *unit) start() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wanted = true
	if u.pid != 0 {
		return nil
	}
	return u.launch()
}

// launch requires the lock.
func (u *unit) launch() error {
	if err := os.MkdirAll(filepath.Dir(u.Log), 0o755); err != nil {
		return fmt.Errorf("opening the log of %s: %w", u.Name, err)
	}
	log, err := os.OpenFile(u.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", u.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(u.Args[0], u.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = u.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	child, err := u.reaper.Start(cmd)
	if err != nil {
		u.note = err.Error()
		return fmt.Errorf("starting %s: %w", u.Name, err)
	}
	u.pid, u.since, u.note, u.ended = child.PID, time.Now(), "", make(chan struct{})
	go u.watch(child.Exit, u.ended)
	return nil
}

// watch records the exit of the process and starts it again if no order requested the exit.
func (u *unit) watch(exit <-chan syscall.WaitStatus, ended chan struct{}) {
	status := <-exit
	u.mu.Lock()
	u.pid, u.note = 0, describe(status)
	wanted := u.wanted
	close(ended)
	u.mu.Unlock()
	if !wanted {
		return
	}
	fmt.Fprintf(os.Stderr, "%s %s: starting it again\n", u.Name, describe(status))
	time.Sleep(restartPause)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wanted && u.pid == 0 {
		if err := u.launch(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("was killed by signal %d", status.Signal())
	}
	return fmt.Sprintf("ended with exit status %d", status.ExitStatus())
}

// stop terminates the program, and then kills it. Processes that the program started keep running.
func (u *unit) stop() error {
	u.mu.Lock()
	u.wanted = false
	pid, ended := u.pid, u.ended
	u.mu.Unlock()
	if pid == 0 {
		return nil
	}
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, stopGrace}, {syscall.SIGKILL, stopGrace}} {
		if err := Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping %s: %w", u.Name, err)
		}
		select {
		case <-ended:
			return nil
		case <-time.After(step.wait):
		}
	}
	return fmt.Errorf("stopping %s: process %d does not end after SIGKILL", u.Name, pid)
}

// await returns when the service answers its probe, or returns the reason why it does not.
func (u *unit) await() error {
	deadline := time.Now().Add(startLimit)
	for {
		err := u.Probe.check()
		if err == nil {
			return nil
		}
		now := u.status()
		if now.PID == 0 && now.Note != "" {
			return fmt.Errorf("starting %s: it %s; the end of its log: %s", u.Name, now.Note, lastLine(u.Log))
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("starting %s: no answer in %.0f s: %w; the end of its log: %s", u.Name, startLimit.Seconds(), err, lastLine(u.Log))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
