package gpus

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/screen"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// ErrDoesNotFit is the error of kubectl prism explain about a pod or claim that fits on no node. Its explanation has been printed.
var ErrDoesNotFit = errors.New("it fits on no node")

// errDone ends a watch without a problem.
var errDone = errors.New("done")

// Views returns the commands that show the GPUs of a cluster, and why pods wait for them: explain, map, top, capacity, defragment and ui. They
// change nothing.
func Views(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) []*cobra.Command {
	connection := func() *viewer { return &viewer{Connection: cluster.Connection{Flags: flags, IOStreams: streams}} }
	return []*cobra.Command{
		explainCommand(connection()), mapCommand(connection()), topCommand(connection()), capacityCommand(connection()),
		defragmentCommand(connection()), uiCommand(connection()),
	}
}

// viewer contains the flags of the commands that show GPUs, and where they write.
type viewer struct {
	cluster.Connection
	format, nodeSelector string
	watch                bool
	// warned are the lines on stderr, each of which is written once.
	warned map[string]bool
	// frames is the number of frames that were drawn.
	frames int
}

// bind adds the flags.
func (v *viewer) bind(flags *pflag.FlagSet) {
	v.Bind(flags)
	flags.StringVarP(&v.format, "output", "o", "", "Output format: wide, json or yaml.")
	flags.StringVar(&v.nodeSelector, "node-selector", "", "Labels of the nodes to include, such as zone=a.")
	flags.BoolVarP(&v.watch, "watch", "w", false, "Show changes until interrupted.")
}

// check validates the flags; formats are further values of --output.
func (v *viewer) check(formats ...string) error {
	if v.watch && (v.format == "json" || v.format == "yaml") {
		return fmt.Errorf("--watch: not supported with --output %s", v.format)
	}
	return checkFormat(v.format, formats...)
}

// wide reports whether the output has more columns.
func (v *viewer) wide() bool { return v.format == "wide" }

// screen returns the screen, whose width may have changed.
func (v *viewer) screen() screen.Screen { return screen.Of(v.Out) }

// draw writes text, with --watch over the text before.
func (v *viewer) draw(text string) error {
	if v.watch {
		text = v.screen().Frame(text, v.frames == 0)
		v.frames++
	}
	_, err := io.WriteString(v.Out, text)
	return err
}

// warn writes the rights that the user lacks to stderr, one line each, and the age of a picture of objects that changed meanwhile.
func (v *viewer) warn(c *clusterview.Cluster, rights []view.Missing, now time.Time) {
	for _, right := range rights {
		v.once(right.String())
	}
	if c.Scope.Changed && !c.Scope.Read.IsZero() && !v.watch {
		v.once("Objects changed while they were read: the picture is from " + duration.HumanDuration(now.Sub(c.Scope.Read)) + " ago")
	}
}

// unread returns an error if the user may not list these resources, without which there is nothing to show.
func unread(rights []view.Missing, resources ...string) error {
	var names []string
	for _, resource := range resources {
		of := func(right view.Missing) bool {
			return right.Verb == "list" && right.Resource == resource+"."+resourceapi.GroupName
		}
		if slices.ContainsFunc(rights, of) {
			names = append(names, kinds[resource])
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("the GPUs are unknown: you cannot list %s", strings.Join(names, " and "))
}

// The resources that describe GPUs, and their kinds.
const resourceSlices, deviceClasses = "resourceslices", "deviceclasses"

var kinds = map[string]string{resourceSlices: "ResourceSlices", deviceClasses: "DeviceClasses"}

// once writes a line to stderr, if it was not written before.
func (v *viewer) once(line string) {
	if v.warned[line] {
		return
	}
	if v.warned == nil {
		v.warned = map[string]bool{}
	}
	v.warned[line] = true
	_, _ = fmt.Fprintln(v.ErrOut, safe(line))
}

// oneOf returns the only argument, which must be one of some words.
func oneOf(words ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || !slices.Contains(words, args[0]) {
			return fmt.Errorf("an argument is required: %s", strings.Join(words, ", "))
		}
		return nil
	}
}
