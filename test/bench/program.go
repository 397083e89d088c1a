package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Program is a DRA driver in its own process beside the installed one, with its own directories.
type Program struct {
	// Driver is the name with which it registers, Dir contains its directories, CDI its CDI specs.
	Driver, Dir, CDI string
	// Command is the program with its arguments.
	Command []string
	// Plugin is its connection, nil while it does not run.
	Plugin *Plugin

	command *exec.Cmd
	input   io.WriteCloser
	log     *os.File
}

// NewProgram creates the directories. It starts nothing.
func NewProgram(driver, dir, cdi string) (*Program, error) {
	p := &Program{Driver: driver, Dir: dir, CDI: cdi}
	for _, sub := range []string{p.pluginsDir(), p.registryDir(), p.CDI} {
		if err := os.MkdirAll(sub, 0o750); err != nil {
			return nil, fmt.Errorf("creating the directories of %s: %w", driver, err)
		}
	}
	return p, nil
}

func (p *Program) pluginsDir() string { return filepath.Join(p.Dir, "plugins") }

func (p *Program) registryDir() string { return filepath.Join(p.Dir, "registry") }

func (p *Program) recordsDir() string { return filepath.Join(p.pluginsDir(), p.Driver, "claims") }

func (p *Program) kubeconfig() string { return filepath.Join(p.Dir, "kubeconfig") }

// startLimit is far longer than the start of a plugin takes.
const startLimit = 20 * time.Second

// Start runs the program and waits for its first answer. It returns the time from the start to the answer.
func (p *Program) Start(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	if err := p.spawn(ctx, p.Command...); err != nil {
		return 0, err
	}
	if err := p.await(ctx); err != nil {
		return 0, errors.Join(err, p.Kill())
	}
	return time.Since(start), nil
}

// StartTraced is Start with a trace of the program's file operations until some time after its first answer.
func (p *Program) StartTraced(ctx context.Context, after time.Duration) (calls []Syscall, err error) {
	// The shell waits until it is traced, and then executes the program.
	if err := p.spawn(ctx, append([]string{"/bin/sh", "-c", `read -r go && exec "$0" "$@"`}, p.Command...)...); err != nil {
		return nil, err
	}
	calls, err = Trace(ctx, p.command.Process.Pid, tracedFiles, func() error {
		if _, err := p.input.Write([]byte("go\n")); err != nil {
			return fmt.Errorf("starting %s: %w", p.Driver, err)
		}
		if err := p.await(ctx); err != nil {
			return err
		}
		pause(ctx, after)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return calls, nil
}

func (p *Program) spawn(ctx context.Context, command ...string) (err error) {
	if p.log, err = os.OpenFile(filepath.Join(p.Dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("starting %s: %w", p.Driver, err)
	}
	p.command = exec.CommandContext(ctx, command[0], command[1:]...)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	// No runtime reads the specs of the benchmark, which the plugin would find out and report. An older build ignores the variable; it would
	// refuse the flag.
	p.command.Env = append(os.Environ(), "PRISM_CRI_SOCKET="+filepath.Join(p.Dir, "no-runtime.sock"))
	if p.input, err = p.command.StdinPipe(); err == nil {
		err = p.command.Start()
	}
	if err != nil {
		p.command = nil
		return errors.Join(fmt.Errorf("starting %s: %w", p.Driver, err), p.log.Close())
	}
	return nil
}

// await returns when the program answers.
func (p *Program) await(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if p.Plugin, err = Register(ctx, p.registryDir(), p.Driver); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to serve: %w: %s", p.Driver, err, p.tail())
		}
	}
}

// tail returns the end of the program's log.
func (p *Program) tail() string {
	text, _ := os.ReadFile(filepath.Join(p.Dir, "log"))
	return string(text[max(0, len(text)-2000):])
}

// Kill sends SIGKILL to the program.
func (p *Program) Kill() error {
	if p.command == nil {
		return nil
	}
	failed := []error{p.command.Process.Kill()}
	_ = p.command.Wait() // always reports that it was killed
	p.command = nil
	if p.Plugin != nil {
		failed = append(failed, p.Plugin.Close())
		p.Plugin = nil
	}
	return errors.Join(append(failed, p.log.Close())...)
}

// prismCommand runs the plugin with its own directories and additional flags.
func prismCommand(p *Program, binary, node, podResources string, flags ...string) []string {
	return append([]string{
		binary, "--driver-name=" + p.Driver, "--node-name=" + node, "--pod-uid=bench", "--kubeconfig=" + p.kubeconfig(), "--host-root=/",
		"--http-endpoint=", "--cdi-root=" + p.CDI, "--kubelet-plugins-dir=" + p.pluginsDir(), "--kubelet-registrar-dir=" + p.registryDir(),
		"--state-dir=" + filepath.Join(p.Dir, "state"), "--kubelet-pod-resources-socket=" + podResources,
	}, flags...)
}

// exampleCommand runs the unmodified dra-example-driver without the rate limit of its client.
func exampleCommand(p *Program, binary, node string, gpus int) []string {
	return []string{
		binary, "--driver-name=" + p.Driver, "--node-name=" + node, "--pod-uid=bench", "--kubeconfig=" + p.kubeconfig(),
		"--cdi-root=" + p.CDI, "--kubelet-plugins-directory-path=" + p.pluginsDir(), "--kubelet-registrar-directory-path=" + p.registryDir(),
		fmt.Sprintf("--num-devices=%d", gpus), "--kube-api-qps=1000", "--kube-api-burst=1000",
	}
}
