package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

const (
	// manualPause is the interval at which files of prism-run are read.
	manualPause = 50 * time.Millisecond
	// maxSentence is the maximum size of a reason in a manifest.
	maxSentence = 400
	// waiters is the number of processes that wait at once, and manualRounds how often such processes are recorded: prism-run starts nsys
	// again, with other process ids, if it fails, and then even 2022.4.2 may work. It recorded two processes in 2 of 8 tries, and four in none.
	waiters, manualRounds = 4, 2
)

// proveManual returns why the version cannot record processes that wait for a command; "" if it can.
func (p Prover) proveManual(ctx context.Context, installed manifest.Installed) string {
	contained := true
	if output, err := p.contained(ctx).CombinedOutput(); err != nil && ctx.Err() == nil {
		// Where AppArmor denies mounts. Versions that confuse containers are then not detected.
		klog.FromContext(ctx).Info("Testing processes that wait in one PID namespace, because there can be no other one",
			"version", p.Version, "reason", fmt.Sprintf("%v: %s", err, tail(output)))
		contained = false
	}
	m := &manual{Prover: p, contains: contained, results: filepath.Join(p.Container, "results")}
	for range manualRounds {
		if err := m.prove(ctx, installed); err != nil {
			return sentence(fmt.Errorf("recording processes that wait in several containers: %w", err))
		}
	}
	return ""
}

// contained returns the command of a program in PID and mount namespaces of its own. It shares /dev/shm, as containers of a pod do.
func (p Prover) contained(ctx context.Context, program ...string) *exec.Cmd {
	return Contained{Self: p.Self, SharedMemory: true}.Command(ctx, program...)
}

// sentence returns the beginning of an error in one line.
func sentence(err error) string {
	text := err.Error()
	return strings.TrimRight(tail([]byte(strings.ToValidUTF8(text[:min(len(text), maxSentence)], ""))), ": ")
}

// manual records processes that wait.
type manual struct {
	Prover
	contains bool
	results  string
	commands int
}

// prove records processes at the same time: versions that take the processes of another container for their own mix these up, above all
// since the containers use the same process ids.
func (m *manual) prove(ctx context.Context, installed manifest.Installed) error {
	plan := runplan.Plan{Manual: true, Switches: []string{"--trace=osrt", "--wait=primary"}, StartSwitches: unsampled, MaxSessions: waiters}
	ctx, stop := context.WithTimeout(ctx, proofTimeout)
	defer stop()
	if err := m.layOut(m.results, installed, plan); err != nil {
		return err
	}
	var all []*waiter
	defer func() {
		for _, w := range all {
			_ = w.end()
		}
	}()
	for range waiters {
		w, err := m.run(ctx, all)
		if w != nil {
			all = append(all, w)
		}
		if err != nil {
			return err
		}
	}
	for _, w := range all {
		if err := m.command(ctx, w, v1alpha1.SessionStart, session.Begun); err != nil {
			return err
		}
	}
	for _, w := range all {
		if err := m.command(ctx, w, v1alpha1.SessionStop, session.Recorded); err != nil {
			return err
		}
		if err := m.reported(w); err != nil {
			return err
		}
	}
	for _, w := range all {
		if err := w.end(); err != nil {
			return err
		}
	}
	return nil
}

// waiter is a process that waits, with its prism-run.
type waiter struct {
	// folder is the name of the session, report the name of its recording.
	folder, report string
	// The process exits when stdin is closed.
	stdin  io.Closer
	output last
	exited chan struct{}
	err    error
}

// run starts a process and waits until it waits for a command.
func (m *manual) run(ctx context.Context, others []*waiter) (*waiter, error) {
	program := []string{filepath.Join(m.Programs, runProgram), filepath.Join(m.Programs, proofProgram), proofProgram}
	command := exec.CommandContext(ctx, program[0], program[1:]...)
	if m.contains {
		command = m.contained(ctx, program...)
	}
	command.Env = []string{"PATH=/usr/bin:/bin"}
	command.WaitDelay = time.Second
	w := &waiter{exited: make(chan struct{})}
	command.Stdout, command.Stderr = &w.output, &w.output
	var err error
	if w.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		w.err = command.Wait()
		close(w.exited)
	}()
	return w, m.await(ctx, w, "the profiler does not wait beside it", func() (bool, error) {
		w.folder = m.waits(others)
		if w.folder == "" && len(m.notes("s*", "state=Failed")) > 0 {
			return false, fmt.Errorf("the profiler did not start beside it: %s", outputOf(m.results))
		}
		return w.folder != "", nil
	})
}

// waits returns the name of a session that waits and is not one of those; "" if there is none.
func (m *manual) waits(others []*waiter) string {
	for _, path := range m.notes("w*", "state="+string(session.Waiting)) {
		folder := filepath.Base(filepath.Dir(path))
		if !slices.ContainsFunc(others, func(other *waiter) bool { return other.folder == folder }) {
			return folder
		}
	}
	return ""
}

// notes returns the notes of folders with such a name that contain a text.
func (m *manual) notes(name, text string) []string {
	paths, _ := filepath.Glob(filepath.Join(m.results, name, "note"))
	return slices.DeleteFunc(paths, func(path string) bool {
		note, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(note), text)
	})
}

// await waits until done returns true. The error names the process and says what did not happen.
func (m *manual) await(ctx context.Context, w *waiter, failed string, done func() (bool, error)) error {
	for {
		is, err := done()
		if is || err != nil {
			return err
		}
		select {
		case <-w.exited:
			return fmt.Errorf("%s: %s exited: %w: %s", failed, runProgram, cmp.Or(w.err, errEarly), tail(append(w.output.bytes, outputOf(m.results)...)))
		default:
		}
		if !sleep(ctx, manualPause) {
			return fmt.Errorf("%s: %w: %s", failed, context.Cause(ctx), outputOf(m.results))
		}
	}
}

// errEarly is the error of a process that exited before its stdin was closed.
var errEarly = errors.New("exit status 0")

// command passes a command, and waits for an outcome.
func (m *manual) command(ctx context.Context, w *waiter, verb v1alpha1.SessionVerb, want session.Outcome) error {
	m.commands++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012x", m.commands)
	raw, err := session.Control{ID: id, Verb: verb}.Encode()
	if err != nil {
		return err
	}
	path := filepath.Join(m.Container, "plan", session.ControlFolder, w.folder)
	if err := errors.Join(os.WriteFile(path+".new", raw, 0o644), os.Rename(path+".new", path)); err != nil {
		return err
	}
	return m.await(ctx, w, fmt.Sprintf("no answer to %s", verb), func() (bool, error) {
		raw, _ := os.ReadFile(filepath.Join(m.results, w.folder, session.AnswersFile))
		for _, answer := range session.ParseAnswers(raw, time.Now()) {
			w.report = cmp.Or(answer.Report, w.report)
			switch {
			case answer.ID != id:
			case answer.Outcome == want:
				return true, nil
			case answer.Outcome.Final():
				return false, fmt.Errorf("%s ended with %s: %s", verb, answer.Outcome, tail([]byte(answer.Message)))
			}
		}
		return false, nil
	})
}

// reported checks that the recording has a report.
func (m *manual) reported(w *waiter) error {
	info, err := os.Stat(filepath.Join(m.results, w.report, "report.qdstrm"))
	if err != nil || info.Size() == 0 {
		return fmt.Errorf("the recording has no report: %s", outputOf(m.results))
	}
	return nil
}

// end lets the process exit, and returns how it did.
func (w *waiter) end() error {
	_ = w.stdin.Close()
	<-w.exited
	if w.err != nil {
		return fmt.Errorf("%s: %w: %s", runProgram, w.err, tail(w.output.bytes))
	}
	return nil
}
