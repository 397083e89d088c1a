package profile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	profiler "github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/profile/record"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// recording contains the flags of commands for sessions and claims.
type recording struct {
	selection
	verb          v1alpha1.SessionVerb
	at, backtrace string
	duration      time.Duration
	frequency     int32
	dryRun, yes   bool
}

// recordCommands returns the commands that start and end recordings.
func recordCommands(c cluster) []*cobra.Command {
	return []*cobra.Command{startCommand(c), stopCommand(c), cancelCommand(c), armCommand(c), disarmCommand(c)}
}

func startCommand(c cluster) *cobra.Command {
	r := &recording{verb: v1alpha1.SessionStart}
	command := &cobra.Command{
		Use:   "start [SESSION...]",
		Short: "Start recordings of processes that wait",
		Long: "Starts recordings of sessions by name or by flags that select them, and prints a line for each when it records. With --duration all " +
			"recordings begin before the same moment, end after the duration, and are waited for; the last lines name those that do not cover the " +
			"whole window. The exit status is 1 if a session was refused, failed, or misses a part of the window, or if a node did not answer.",
		Example: "  kubectl prism profile start 1a2b3c4d-w7-18a3c5e0f1b2d3c4\n" +
			"  kubectl prism profile start --pod train --duration 10s\n" +
			"  kubectl prism profile start -A -l gpu.prism.dev/claim=train --duration 30s --at 2026-01-02T15:04:05Z --yes",
	}
	flags := command.Flags()
	flags.DurationVar(&r.duration, "duration", 0, "Length of the window, at most 24h. The default is the duration of the claim's ProfilerConfig; "+
		"without one, recordings end with stop or cancel.")
	flags.StringVar(&r.at, "at", "", "Beginning of the window, at most 10 minutes ahead, such as 2026-01-02T15:04:05Z; requires --duration. The default is "+
		"the time of the API server and 3 seconds, and half a second for each session of the node with the most of them, at most a minute.")
	flags.Int32Var(&r.frequency, "sampling-frequency", 0, "CPU samples per second, from 100 to 8000, if the claim samples CPUs. The default is the "+
		"claim's.")
	flags.StringVar(&r.backtrace, "backtrace", "", "Method to unwind call stacks of CPU samples, if the claim samples CPUs: "+
		strings.Join(backtraces, ", ")+". The default is the claim's.")
	return r.complete(c, command)
}

func stopCommand(c cluster) *cobra.Command {
	r := &recording{verb: v1alpha1.SessionStop}
	return r.complete(c, &cobra.Command{
		Use:   "stop [SESSION...]",
		Short: "End recordings of processes, which wait again",
		Long: "Ends recordings of sessions by name or by flags that select them, and prints a line with the report for each when it is written. Flags " +
			"select sessions that record; a start that has not begun is replaced. The exit status is 1 if a session was refused or failed, or if a " +
			"node did not answer.",
		Example: "  kubectl prism profile stop 1a2b3c4d-w7-18a3c5e0f1b2d3c4\n" +
			"  kubectl prism profile stop --pod train\n" +
			"  kubectl prism profile stop -A --all --yes",
	})
}

func cancelCommand(c cluster) *cobra.Command {
	r := &recording{verb: v1alpha1.SessionCancel}
	return r.complete(c, &cobra.Command{
		Use:   "cancel [SESSION...]",
		Short: "End recordings of processes, and delete their reports",
		Long: "Ends recordings of sessions as stop does, but deletes their reports. A report that is already written is not deleted; " +
			"kubectl prism profile rm removes it.",
		Example: "  kubectl prism profile cancel 1a2b3c4d-w7-18a3c5e0f1b2d3c4\n" +
			"  kubectl prism profile cancel --claim train",
	})
}

func armCommand(c cluster) *cobra.Command {
	r := &recording{verb: v1alpha1.SessionArm}
	return r.complete(c, &cobra.Command{
		Use:   "arm CLAIM...",
		Short: "Profile processes of claims that start from now on",
		Long: "Arms prepared ResourceClaims whose ProfilerConfig has arm: OnDemand: processes that start from now on, and match the ProfilerConfig, " +
			"are profiled. Processes that run are not: profiling must be prepared when a process starts.",
		Example: "  kubectl prism profile arm train\n" +
			"  kubectl prism profile arm train-0 train-1 --dry-run",
		Args: cobra.MinimumNArgs(1),
	})
}

func disarmCommand(c cluster) *cobra.Command {
	r := &recording{verb: v1alpha1.SessionDisarm}
	return r.complete(c, &cobra.Command{
		Use:   "disarm CLAIM...",
		Short: "Do not profile processes of claims that start from now on",
		Long: "Disarms prepared ResourceClaims whose ProfilerConfig has arm: OnDemand: processes that start from now on are not profiled. Sessions and " +
			"recordings of processes that run continue.",
		Example: "  kubectl prism profile disarm train\n" +
			"  kubectl prism profile disarm train-0 train-1",
		Args: cobra.MinimumNArgs(1),
	})
}

// complete adds the flags of all commands.
func (r *recording) complete(c cluster, command *cobra.Command) *cobra.Command {
	command.RunE = func(command *cobra.Command, names []string) error { return r.run(c, command, names) }
	command.Flags().BoolVar(&r.dryRun, "dry-run", false, "Print what the command would do; nothing is changed.")
	if r.ofClaims() {
		return command
	}
	r.bind(command.Flags(), sessions)
	command.Flags().BoolVar(&r.all, "all", false, "All sessions of the namespace.")
	command.Flags().BoolVar(&r.yes, "yes", false, "Do not ask before a command for more than 20 sessions.")
	return command
}

func (r *recording) ofClaims() bool {
	return r.verb == v1alpha1.SessionArm || r.verb == v1alpha1.SessionDisarm
}

// run validates the command before the first request, and runs it.
func (r *recording) run(c cluster, command *cobra.Command, names []string) error {
	named, err := r.named(command, names)
	if err != nil {
		return err
	}
	spec, err := r.spec(command.Flags())
	if err != nil {
		return err
	}
	if _, _, err := r.Selectors(); err != nil {
		return err
	}
	client, namespace, err := c.reports()
	if err != nil {
		return err
	}
	if r.allNamespaces {
		namespace = ""
	}
	console := record.Console{
		Print: c.print, Say: c.say, Program: program(command),
		Missing: func(silent, truncated []string) { c.missing(client, sessions, silent, truncated) },
	}
	if isTerminal(c.In) {
		console.Ask = c.ask
	}
	return record.Run(command.Context(), client, record.Command{
		Spec: spec, Namespace: namespace, Names: named, Selection: r.Selection, DryRun: r.dryRun, Yes: r.yes,
	}, console)
}

// named returns the plain names, each once.
func (r *recording) named(command *cobra.Command, names []string) (plain []string, err error) {
	of, things := sessionName, sessions
	if r.ofClaims() {
		of, things = claimName, "claims"
	} else if err := r.check(command, sessions, names); err != nil {
		return nil, err
	}
	for _, name := range names {
		name, err := plainName(of, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(plain, name) {
			plain = append(plain, name)
		}
	}
	if len(plain) > session.MaxNames {
		return nil, fmt.Errorf("%d %s are named; at most %d are allowed: use several commands", len(plain), things, session.MaxNames)
	}
	return plain, nil
}

// backtraces are the values of --backtrace.
var backtraces = []string{
	string(profiler.BacktraceNone), string(profiler.BacktraceLBR), string(profiler.BacktraceFramePointer), string(profiler.BacktraceDWARF),
}

// spec returns the options of the command.
func (r *recording) spec(flags *pflag.FlagSet) (v1alpha1.SessionCommandSpec, error) {
	spec := v1alpha1.SessionCommandSpec{Verb: r.verb}
	if flags.Changed("duration") {
		if r.duration <= 0 || r.duration > session.MaxDuration {
			return spec, fmt.Errorf("--duration: must be greater than 0 and at most 24h, got %s", r.duration)
		}
		spec.Duration = &metav1.Duration{Duration: r.duration}
	}
	if flags.Changed("at") {
		at, err := time.Parse(time.RFC3339, r.at)
		switch {
		case err != nil:
			return spec, fmt.Errorf("--at: must be a time such as 2026-01-02T15:04:05Z, got %q", r.at)
		case spec.Duration == nil:
			return spec, errors.New("--at: requires --duration: the recordings cover a window")
		}
		spec.At = new(metav1.NewMicroTime(at.UTC()))
	}
	if flags.Changed("sampling-frequency") {
		if r.frequency < 100 || r.frequency > 8000 {
			return spec, fmt.Errorf("--sampling-frequency: must be from 100 to 8000, got %d", r.frequency)
		}
		spec.SamplingFrequencyHz = &r.frequency
	}
	if flags.Changed("backtrace") {
		if !slices.Contains(backtraces, r.backtrace) {
			return spec, fmt.Errorf("--backtrace: unsupported value %q; supported values: %s", r.backtrace, strings.Join(backtraces, ", "))
		}
		spec.Backtrace = &r.backtrace
	}
	return spec, nil
}

// program returns the beginning of a command line for the same cluster and user. Secrets are left out.
func program(command *cobra.Command) string {
	text := "kubectl prism"
	command.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed || slices.Contains([]string{"namespace", "token", "password"}, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		for _, value := range values {
			text += fmt.Sprintf(" --%s=%s", f.Name, record.Quote(value))
		}
	})
	return text
}

// ask asks a question on the terminal. An interrupt ends it.
func (c cluster) ask(ctx context.Context, question string) (bool, error) {
	_, _ = fmt.Fprintf(c.ErrOut, "%s [y/N] ", question)
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(c.In).ReadString('\n')
		line <- text
	}()
	select {
	case <-ctx.Done():
		return false, errors.New("interrupted")
	case text := <-line:
		return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(text))), nil
	}
}
