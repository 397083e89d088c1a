//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// step is a make target of a run, and its duration.
type step struct {
	name string
	// result is "passed", "failed" or "not run".
	result             string
	took, cpu, machine time.Duration
}

// runner runs the steps of a run one after another. dir contains their output and the events of their tests.
type runner struct {
	dir     string
	out     io.Writer
	command func(step string) []string

	// loaded reports whether other processes of the machine are busy; nil measures that.
	loaded func() bool

	steps   []*step
	started time.Time
	load    string
}

func makeTarget(step string) []string { return []string{"make", "--no-print-directory", step} }

// run runs the steps until one fails, and prints the report in any case. e2e and lifecycle prove different things, so one runs even if the
// other failed.
func (r *runner) run(ctx context.Context, names []string, beside bool) error {
	r.started, r.load = time.Now(), load()
	for _, name := range names {
		r.steps = append(r.steps, &step{name: name, result: "not run"})
	}
	err := r.all(ctx, beside)
	return errors.Join(err, r.report())
}

func (r *runner) all(ctx context.Context, beside bool) error {
	var failure error
	var second *besideStep
	for _, s := range r.steps {
		if failure != nil && s.name != "lifecycle" || ctx.Err() != nil {
			break
		}
		if s.name == "e2e" && beside {
			second = r.startBeside(ctx)
		}
		if s.name == "lifecycle" && second != nil {
			failure = errors.Join(failure, second.finish(r.out))
			second = nil
			continue
		}
		// Lifecycle requires success of the steps before e2e.
		if failure != nil && !r.reached("e2e") {
			break
		}
		failure = errors.Join(failure, r.step(ctx, s, r.out, nil))
	}
	if second != nil {
		failure = errors.Join(failure, second.finish(r.out))
	}
	return failure
}

func (r *runner) reached(name string) bool {
	return slices.ContainsFunc(r.steps, func(s *step) bool { return s.name == name && s.result != "not run" })
}

// step runs one step; its output goes to out and to a file.
func (r *runner) step(ctx context.Context, s *step, out io.Writer, weight *lowestWeight) error {
	log, err := os.Create(filepath.Join(r.dir, s.name+".log"))
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := weight.command(ctx, r.command(s.name))
	cmd.Env = append(os.Environ(), "VERDICT_DIR="+r.dir)
	if program, err := os.Executable(); err == nil {
		// The step's hack/verdict.sh does not build it again.
		cmd.Env = append(cmd.Env, "VERDICT_PROGRAM="+program)
	}
	cmd.Stdout = io.MultiWriter(out, log)
	cmd.Stderr = cmd.Stdout
	before, start := machineTime(), time.Now()
	s.result = "failed"
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if weight != nil {
		exited := make(chan struct{})
		defer close(exited)
		go func() {
			select {
			case <-weight.alone:
				weight.restore(cmd)
			case <-exited:
			}
		}()
	}
	err = wait(ctx, cmd)
	weight.remove(ctx.Err() != nil)
	s.took, s.cpu, s.machine = time.Since(start), cpuOf(cmd.ProcessState), machineTime()-before
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.result = "passed"
	return nil
}

// besideStep is lifecycle, running concurrently with e2e.
type besideStep struct {
	done   chan error
	weight *lowestWeight
	output string
}

// startBeside starts lifecycle at the lowest weight. It returns nil without that step, or if the kernel does not support such a weight.
func (r *runner) startBeside(ctx context.Context) *besideStep {
	at := slices.IndexFunc(r.steps, func(s *step) bool { return s.name == "lifecycle" })
	if at < 0 {
		return nil
	}
	if r.loaded == nil {
		r.loaded = othersBusy
	}
	if r.loaded() {
		// At the lowest weight it would get no CPU time, and its deadlines would pass.
		_, _ = fmt.Fprintln(r.out, "verdict: lifecycle runs after e2e: other processes keep the CPUs busy")
		return nil
	}
	weight, err := newLowestWeight()
	if err != nil {
		_, _ = fmt.Fprintf(r.out, "verdict: lifecycle runs after e2e: %v\n", err)
		return nil
	}
	_, _ = fmt.Fprintf(r.out, "verdict: lifecycle runs beside e2e, %s\n", weight)
	b := &besideStep{done: make(chan error, 1), weight: weight, output: filepath.Join(r.dir, r.steps[at].name+".log")}
	go func() { b.done <- r.step(ctx, r.steps[at], io.Discard, weight) }()
	return b
}

// finish restores the usual weight of lifecycle, waits for it, and prints its output, which would mix with the lines of e2e.
func (b *besideStep) finish(out io.Writer) error {
	close(b.weight.alone)
	err := <-b.done
	log, openErr := os.Open(b.output)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer func() { _ = log.Close() }()
	_, copyErr := io.Copy(out, log)
	return errors.Join(err, copyErr)
}
