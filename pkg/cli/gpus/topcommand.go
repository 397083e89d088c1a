package gpus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/usage"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// topInterval is the time between two frames: exporters sample GPUs as often by default.
const topInterval = 10 * time.Second

// The arguments of kubectl prism top.
const (
	topNodes, topGPUs, topPods, topNamespaces = "nodes", "gpus", "pods", "namespaces"
)

// top is a run of kubectl prism top.
type top struct {
	*viewer
	client *cluster.Client
	// of is the argument; prometheus, sort and all are flags.
	of, prometheus, sort string
	all                  bool
	// places are the GPUs by UUID, as the ResourceSlices name them.
	places map[string]topPlace
}

// topPlace is where a GPU is.
type topPlace struct {
	node, name, product string
	index               *int64
}

func topCommand(v *viewer) *cobra.Command {
	t := &top{viewer: v}
	command := &cobra.Command{
		Use:   "top nodes|gpus|pods|namespaces",
		Short: "Show utilization, memory and power of GPUs, by node, GPU, pod or namespace",
		Long: "Shows how busy GPUs are, from the metrics of prism-exporter. --prometheus names a Prometheus that scrapes it; without the flag the exporter " +
			fmt.Sprintf("pods of up to %d nodes are asked through the API server. ", usage.MostNodes) + "Utilization of nodes is the mean of their GPUs. Pods " +
			"and namespaces have the sum over their devices: 200% are two busy devices. Unknown values are -.",
		Example: "  kubectl prism top nodes\n" +
			"  kubectl prism top pods -A --sort memory\n" +
			"  kubectl prism top gpus --prometheus monitoring/prometheus-operated:9090",
		Args: oneOf(topNodes, topGPUs, topPods, topNamespaces),
		RunE: func(command *cobra.Command, args []string) error {
			t.of = args[0]
			return t.run(command.Context())
		},
	}
	t.bind(command.Flags())
	command.Flags().StringVar(&t.prometheus, "prometheus", "", "URL of Prometheus, or namespace/service:port to reach it through the API server.")
	command.Flags().StringVar(&t.sort, "sort", "name", "Order: "+strings.Join(topSorts, ", ")+"; values are sorted from the highest.")
	command.Flags().BoolVarP(&t.all, "all-namespaces", "A", false, "Pods of all namespaces.")
	return command
}

// topSorts are the values of --sort.
var topSorts = []string{"name", "utilization", "memory", "power"}

func (t *top) run(ctx context.Context) (err error) {
	if err := t.check(); err != nil {
		return err
	}
	if !slices.Contains(topSorts, t.sort) {
		return fmt.Errorf("--sort: unsupported value %q; supported values: %s", t.sort, strings.Join(topSorts, ", "))
	}
	if t.client, err = t.Connect(); err != nil {
		return err
	}
	if err := t.locate(ctx); err != nil {
		return err
	}
	if !t.watch {
		return t.show(ctx)
	}
	return repeat(ctx, topInterval, t.show)
}

// repeat calls a function now and after each interval, until it fails or the context ends, which is no error.
func repeat(ctx context.Context, interval time.Duration, show func(context.Context) error) error {
	var failed error
	_ = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		failed = show(ctx)
		return failed != nil, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the user has ended it
	}
	return failed
}

// locate reads where the GPUs are.
func (t *top) locate(ctx context.Context) error {
	c, missing, err := view.Read(ctx, t.client, view.Options{Driver: t.client.Driver, Namespace: t.client.Namespace, NodeSelector: t.nodeSelector})
	if err != nil {
		return err
	}
	// Claims, classes and taints are not shown.
	shown := func(right view.Missing) bool {
		return strings.HasPrefix(right.Resource, resourceSlices+".") || right.Resource == "nodes" && t.nodeSelector != ""
	}
	t.warn(c, slices.DeleteFunc(missing, func(right view.Missing) bool { return !shown(right) }), t.client.Clock.Now())
	if err := unread(missing, resourceSlices); err != nil {
		return err
	}
	gpus, err := nodeGPUs(ctx, t.client, c, "")
	if err != nil {
		return err
	}
	t.places = map[string]topPlace{}
	for _, g := range gpus {
		t.places[g.UUID] = topPlace{node: g.Node.Name, name: g.Name, product: g.Product, index: g.Index}
	}
	return nil
}

// show reads the metrics and draws them.
func (t *top) show(ctx context.Context) error {
	samples, err := t.samples(ctx)
	if err != nil {
		return err
	}
	rows := t.rows(usage.Of(samples))
	t.order(rows)
	if done, err := encode(t.Out, t.format, map[string]any{"items": rows}); done {
		return err
	}
	return t.draw(t.text(rows))
}

// samples reads the metrics.
func (t *top) samples(ctx context.Context) ([]usage.Sample, error) {
	if t.prometheus != "" {
		return usage.Prometheus(ctx, t.client, t.prometheus)
	}
	nodes := map[string]bool{}
	for _, place := range t.places {
		nodes[place.node] = true
	}
	samples, failed, err := usage.Exporters(ctx, t.client, func(node string) bool { return nodes[node] })
	for _, problem := range failed {
		t.once(problem.Error())
	}
	return samples, err
}
