package gpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// nodeTime is the time that the search on a node may take. The scheduler's own limit is longer, but for all nodes.
const nodeTime = 2 * time.Second

// searchTime is the time for all nodes together, and for changes. Each node may differ from all others.
const searchTime = 30 * time.Second

// explaining is a run of kubectl prism explain.
type explaining struct {
	*viewer
	client *cluster.Client
	// kind and name are the arguments; selector, file and gates the flags.
	kind, name, selector, file, gates string
	manifest                          *manifest
	features                          structured.Features
	// unread is set if the devices are unknown, for want of rights.
	unread atomic.Pointer[error]
}

func explainCommand(v *viewer) *cobra.Command {
	x := &explaining{viewer: v}
	command := &cobra.Command{
		Use:   "explain pod|claim NAME | -l SELECTOR | -f FILE",
		Short: "Explain why a pod waits for GPUs, and which changes help",
		Long: "Explains on which nodes the claims of a pod fit, on the others the first cause, the claims in the way, and the smallest changes that help. " +
			"The scheduler's own allocator decides. -l explains the Pending pods with these labels, equal pods once. -f explains whether the pods and " +
			"claims of a file would fit now; supported kinds: " + manifestKinds + ". The exit status is 0 if it fits, 3 if it does not, and 1 for an error. " +
			"Nothing is changed.",
		Example: "  kubectl prism explain pod train-0 -n ml\n" +
			"  kubectl prism explain claim train-0-gpu -n ml -o json\n" +
			"  kubectl prism explain -n ml -l app=train --watch\n" +
			"  kubectl prism explain -f train.yaml",
		Args: x.arguments,
		RunE: func(command *cobra.Command, _ []string) error { return x.run(command.Context()) },
	}
	x.bind(command.Flags())
	command.Flags().StringVarP(&x.selector, "selector", "l", "", "Labels of the pods to explain.")
	command.Flags().StringVarP(&x.file, "filename", "f", "", "File with objects to explain as if they were created now; - reads stdin.")
	command.Flags().StringVar(&x.gates, "feature-gates", "", gatesUsage)
	return command
}

// arguments validates the arguments.
func (x *explaining) arguments(_ *cobra.Command, args []string) error {
	const usage = "a pod or claim is required, as in: kubectl prism explain pod NAME; or -l SELECTOR, or -f FILE"
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	ways := 0
	for _, used := range []bool{len(args) > 0, x.selector != "", x.file != ""} {
		if used {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("a name, -l and -f are mutually exclusive")
	case len(args) == 0 && ways == 1:
		return nil
	case len(args) != 2 || args[1] == "":
		return errors.New(usage)
	}
	switch args[0] {
	case "pod", "pods", "po":
		x.kind = kindPod
	case "claim", "claims", "resourceclaim", "resourceclaims":
		x.kind = kindClaim
	default:
		return fmt.Errorf("kind %q: supported kinds: pod, claim", args[0])
	}
	x.name = args[1]
	return nil
}

// The kinds of objects that are explained.
const (
	kindPod   = "Pod"
	kindClaim = "ResourceClaim"
)

func (x *explaining) run(ctx context.Context) (err error) {
	if err := x.check(); err != nil {
		return err
	}
	if x.client, err = x.Connect(); err != nil {
		return err
	}
	if x.file != "" {
		if err := x.read(); err != nil {
			return err
		}
	}
	if x.features, err = view.Features(ctx, x.client, x.gates); err != nil {
		return err
	}
	options := view.Options{
		Driver: x.client.Driver, AllDrivers: true, Namespace: x.client.Namespace, NodeSelector: x.nodeSelector, Pods: true, AllPods: true,
	}
	if x.watch {
		err := view.Watch(ctx, x.client, options, func(c *clusterview.Cluster, missing []view.Missing) error {
			return x.show(ctx, c, missing)
		})
		if errors.Is(err, errDone) || errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	c, missing, err := view.Read(ctx, x.client, options)
	if err != nil {
		return err
	}
	return x.show(ctx, c, missing)
}

// read reads the file.
func (x *explaining) read() (err error) {
	var data []byte
	if x.file == "-" {
		data, err = io.ReadAll(x.In)
	} else {
		data, err = os.ReadFile(x.file)
	}
	if err != nil {
		return fmt.Errorf("reading -f: %w", err)
	}
	if x.manifest, err = parseManifest(data, x.client.Namespace); err != nil {
		return fmt.Errorf("%s: %w", x.file, err)
	}
	if len(x.manifest.ignored) > 0 {
		x.once(fmt.Sprintf("%s: %s requests no devices and is ignored", x.file, strings.Join(x.manifest.ignored, ", ")))
	}
	return nil
}

// show explains, and writes the explanations.
func (x *explaining) show(ctx context.Context, c *clusterview.Cluster, missing []view.Missing) error {
	x.warn(c, missing, x.client.Clock.Now())
	x.note(missing)
	subjects, err := x.subjects(ctx, &c)
	if err != nil {
		return x.ended(err)
	}
	solver := explain.NewSolver(c, x.features)
	all, err := x.explanations(ctx, solver, subjects)
	if err != nil {
		return x.ended(err)
	}
	if err := x.print(all); err != nil {
		return err
	}
	if !x.watch && slices.ContainsFunc(all, func(e *explained) bool { return !e.Fits }) {
		return ErrDoesNotFit
	}
	return nil
}

// explanations explains subjects. With -l, pods that do not wait are left out, if another one does.
func (x *explaining) explanations(ctx context.Context, solver *explain.Solver, subjects []subject) (all []*explained, err error) {
	others, pods := 0, 0
	var last error
	for i := range subjects {
		pods += 1 + len(subjects[i].equal)
		e, err := x.explain(ctx, solver, &subjects[i])
		var refused *explain.Refused
		switch {
		case x.selector != "" && errors.As(err, &refused):
			last = err
			others += 1 + len(subjects[i].equal)
		case err != nil:
			return nil, err
		default:
			all = append(all, e)
		}
	}
	switch {
	case pods == 1 && others == 1:
		return nil, last
	case len(all) == 0:
		return nil, &explain.Refused{Reason: fmt.Sprintf("none of the %d pods with labels %s waits for devices", pods, x.selector)}
	case others > 0:
		x.once(fmt.Sprintf("%d of %d pods with labels %s wait for devices", pods-others, pods, x.selector))
	}
	return all, nil
}

// ended returns the error for objects that cannot be explained. Once explanations were drawn, pods that run now are no error.
func (x *explaining) ended(err error) error {
	var runs *explain.Refused
	if x.watch && x.frames > 0 && errors.As(err, &runs) {
		if err := x.draw(safe(err.Error()) + "\n"); err != nil {
			return err
		}
		return errDone
	}
	return err
}

// note remembers whether the devices of a picture are known.
func (x *explaining) note(missing []view.Missing) {
	err := unread(missing, resourceSlices, deviceClasses)
	x.unread.Store(&err)
}

// explain explains one subject.
func (x *explaining) explain(ctx context.Context, solver *explain.Solver, s *subject) (*explained, error) {
	if err := x.unread.Load(); err != nil && *err != nil {
		return nil, *err
	}
	o := explain.Options{
		Driver: x.client.Driver, Now: x.client.Clock.Now().Unix(),
		PerNode: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, nodeTime)
		},
		Total: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, searchTime)
		},
	}
	out := &explained{Equal: s.equal}
	var err error
	if s.claim != nil {
		out.Explanation, err = explain.Claim(ctx, solver, s.claim, o)
	} else {
		if s.pod.UID != "" {
			o.Facts = x.facts(ctx, s.pod)
		}
		solver = x.withTemplates(ctx, solver, s.pod)
		out.Explanation, err = explain.Pod(ctx, solver, s.pod, o)
	}
	var refused *explain.Refused
	if errors.As(err, &refused) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("explaining %s: %w", s, err)
	}
	if x.client.Driver != cluster.DefaultDriver {
		for i := range out.Changes {
			if change := &out.Changes[i]; strings.Contains(change.Text, "kubectl prism ") {
				change.Text += " --driver-name " + x.client.Driver
			}
		}
	}
	if s.note != "" {
		out.Notes = append(out.Notes, s.note)
	}
	return out, nil
}

// print writes explanations.
func (x *explaining) print(all []*explained) error {
	for _, e := range all {
		if e.Groups == nil { // programs read a list
			e.Groups = []explain.Group{}
		}
	}
	var value any = map[string]any{"items": all}
	if x.name != "" {
		value = all[0]
	}
	if done, err := encode(x.Out, x.format, value); done {
		return err
	}
	now := x.client.Clock.Now()
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.text(x.screen(), x.wide(), now)
	}
	return x.draw(strings.Join(texts, "\n"))
}
