package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// The programs next to this program that Prove runs.
const (
	runProgram   = "prism-run"
	proofProgram = "prism-proof"
)

// proofTimeout is the timeout of one test recording, including all deadlines of prism-run.
const proofTimeout = 3 * time.Minute

// Prover tests that a version records and imports on this node.
type Prover struct {
	Importer
	// Programs is the directory of prism-run and of the process that is recorded.
	Programs string
	// Container is the directory in which prism-run finds the files of a container: /run/prism.
	Container string
}

// Prove records a process with the installed version and imports the report, which must contain the process.
func (p Prover) Prove(ctx context.Context, installed manifest.Installed) error {
	err := p.prove(ctx, installed)
	if err != nil {
		return fmt.Errorf("proving Nsight Systems %s: %w", p.Version, err)
	}
	return nil
}

func (p Prover) prove(ctx context.Context, installed manifest.Installed) error {
	raw, err := p.record(ctx, installed)
	if err != nil {
		return err
	}
	own, err := p.Own()
	if err != nil {
		return err
	}
	report := filepath.Join(own, "proof.nsys-rep")
	defer func() { _ = os.Remove(report) }()
	if err := p.Import(ctx, raw, report); err != nil {
		return fmt.Errorf("importing the report of a process: %w", err)
	}
	return p.has(ctx, installed, report)
}

// has checks that the report contains the process. Versions that compress their reports export them.
func (p Prover) has(ctx context.Context, installed manifest.Installed, report string) error {
	content, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	if bytes.Contains(content, []byte(proofProgram)) {
		return nil
	}
	exported := filepath.Join(filepath.Dir(report), "proof.sqlite")
	defer func() { _ = os.Remove(exported) }()
	nsys := filepath.Join(installed.Dir, installed.Nsys)
	if from, err := p.find(filepath.Dir(installed.Nsys)); err == nil {
		nsys = filepath.Join(from, "nsys") // next to the program that exports
	}
	if _, err := query(ctx, nsys, "export", "--type=sqlite", "--force-overwrite=true", "--output="+exported, report); err != nil {
		return err
	}
	if content, err = os.ReadFile(exported); err != nil {
		return err
	}
	if !bytes.Contains(content, []byte(proofProgram)) {
		return fmt.Errorf("the report of %s does not contain the process: the profiler was not injected", proofProgram)
	}
	return nil
}

// record records a process with prism-run, and returns the raw file.
func (p Prover) record(ctx context.Context, installed manifest.Installed) (string, error) {
	results := filepath.Join(p.Container, "results")
	if err := p.layOut(results, installed, runplan.Plan{
		Switches: slices.Concat([]string{"--trace=osrt"}, unsampled, []string{"--kill=none", "--wait=primary"}),
	}); err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, proofTimeout)
	defer stop()
	command := exec.CommandContext(ctx, filepath.Join(p.Programs, runProgram), filepath.Join(p.Programs, proofProgram), proofProgram)
	command.Env = []string{"PATH=/usr/bin:/bin"}
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", runProgram, err, tail(output))
	}
	found, err := filepath.Glob(filepath.Join(results, "s*", "report.qdstrm"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("recording a process wrote %d reports instead of one: %s", len(found), outputOf(results))
	}
	return found[0], nil
}

// outputOf returns the output of prism-run and nsys about the recording.
func outputOf(results string) string {
	var all []byte
	for _, name := range []string{"note", "nsys.log"} {
		paths, _ := filepath.Glob(filepath.Join(results, "[sw]*", name))
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			if err == nil {
				all = append(append(all, raw...), '\n')
			}
		}
	}
	return tail(all)
}

// unsampled are the switches of a recording without samples of the CPU.
var unsampled = []string{"--sample=none", "--cpuctxsw=none"}

// layOut creates the files of a hook and a plugin for a container.
func (p Prover) layOut(results string, installed manifest.Installed, run runplan.Plan) error {
	plan, own := filepath.Join(p.Container, "plan"), filepath.Join(p.Container, "container")
	control := filepath.Join(plan, session.ControlFolder)
	err := errors.Join(os.RemoveAll(results), os.MkdirAll(results, 0o777), os.RemoveAll(control), os.MkdirAll(control, 0o755))
	if err != nil {
		return err
	}
	run.Claim, run.Namespace, run.ClaimName, run.Node, run.File = "proof", "proof", "proof", "proof", "proof"
	run.Tool, run.ExecSessions, run.Ready = filepath.Join(installed.Dir, installed.Nsys), true, time.Minute
	encoded, err := run.Encode()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(plan, "run"), encoded, 0o644), LayOut(own, "proof", "proof"))
}
