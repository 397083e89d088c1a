package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/tool"
)

// The directories in Work. The first three are where prism-run finds the files of a container; ownDir has a directory for each order, with
// the container's files.
const (
	planMount      = "plan"
	resultsMount   = "results"
	containerMount = "container"
	ownDir         = "orders"
)

const (
	// startTimeout is the default timeout of nsys to start. It is longer than in containers, because no process of a user waits for it.
	startTimeout = time.Minute
	// reportTimeout is the timeout to write a report after the order was removed: prism-run reports a lost one before it is killed.
	reportTimeout = 18 * time.Second
	// maxFolders limits the folders of an inbox that are read; prism-run creates no more.
	maxFolders = 2048
)

// runner runs nsys on this node.
type runner struct {
	program        tool.Program
	prismRun, self string
	root           *os.Root
	dir, work      string
	watcher        watcher
	// helpTimeout is the timeout of help, grace the time from SIGTERM to SIGKILL.
	helpTimeout, grace time.Duration
}

func (r *runner) tool() nsight.Tool { return r.program.Tool }

// contained are the namespaces of a program. nsys would import reports itself where it finds its importer; prism-profiler imports them.
func (r *runner) contained(binds ...tool.Bind) tool.Contained {
	c := tool.Contained{Self: r.self, Binds: binds}
	if r.program.Importer != "" {
		c.Hidden = []string{r.program.Importer}
	}
	return c
}

func (r *runner) help(ctx context.Context, args ...string) (string, error) {
	ctx, end := context.WithTimeout(ctx, r.helpTimeout)
	defer end()
	command := r.contained().Command(ctx, append([]string{r.program.Path}, args...)...)
	command.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + r.work, "TMPDIR=" + r.work}
	command.WaitDelay = time.Second
	var text output
	command.Stdout, command.Stderr = &text, &text
	err := command.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("nsys %s took longer than %v", strings.Join(args, " "), r.helpTimeout)
	case err != nil:
		err = fmt.Errorf("nsys %s: %w: %s", strings.Join(args, " "), err, sentence(string(text.bytes)))
	}
	return string(text.bytes), err
}

func (r *runner) begin(ctx context.Context, order *counters.Order, commands nsight.Commands, changed <-chan struct{}) (recording, error) {
	own, inbox := filepath.Join(r.work, ownDir, order.Claim), filepath.Join(order.Claim, counters.InboxDir)
	if err := r.layOut(own, order, commands); err != nil {
		return nil, err
	}
	// Watched before it is listed: a later folder is reported.
	if err := r.watcher.Add(filepath.Join(r.dir, inbox)); err != nil {
		return nil, fmt.Errorf("watching the inbox: %w", err)
	}
	earlier, err := names(r.root, inbox, maxFolders)
	if err != nil {
		return nil, err
	}
	p := &process{runner: r, manual: order.Manual, own: own, inbox: inbox, folders: map[string]*folder{}, progress: make(chan event)}
	for _, name := range earlier {
		p.folders[name] = nil
	}
	command := r.contained(
		tool.Bind{From: filepath.Join(r.dir, order.Claim, counters.PlanDir), To: filepath.Join(r.work, planMount)},
		tool.Bind{From: filepath.Join(r.dir, inbox), To: filepath.Join(r.work, resultsMount)},
		tool.Bind{From: own, To: filepath.Join(r.work, containerMount)},
	).Command(ctx, r.prismRun, filepath.Join(r.work, containerMount, counters.ProcessName), counters.ProcessName, HoldCommand)
	command.Env = []string{"PATH=/usr/bin:/bin"}
	command.Stdout, command.Stderr = &p.text, &p.text
	if p.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	command.Cancel = func() error {
		// The process does not receive SIGTERM before it handles it. The signal limits the time to write the report.
		p.finish()
		return command.Process.Signal(syscall.SIGTERM)
	}
	command.WaitDelay = r.grace
	if err := command.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	go p.follow(changed, exited)
	return p, nil
}

// layOut creates the files of a hook and a plugin for a container.
func (r *runner) layOut(own string, order *counters.Order, commands nsight.Commands) error {
	plan := runplan.Plan{
		Claim: order.Claim, Namespace: order.Namespace, ClaimName: order.Name, Node: order.Node, GPU: order.GPUs[0].UUID, File: order.File,
		Tool: r.program.Path, Switches: commands.Run, Manual: order.Manual, StartSwitches: commands.Start, ExecSessions: true, FailClosed: true,
		Ready: startTimeout, Report: time.Duration(order.ReportSeconds) * time.Second, Term: reportTimeout,
	}
	if order.StartSeconds > 0 {
		plan.Ready = time.Duration(order.StartSeconds) * time.Second
	}
	encoded, err := plan.Encode()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(own); err != nil {
		return err
	}
	if err := tool.LayOut(own, order.Claim, ""); err != nil {
		return err
	}
	// The name of the program is the name of the process.
	if err := os.Symlink(r.self, filepath.Join(own, counters.ProcessName)); err != nil {
		return err
	}
	return replace(r.root, filepath.Join(order.Claim, counters.PlanDir, "run"), encoded)
}
