package gpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/ui"
	"github.com/prism-gpu/prism/pkg/cli/usage"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// browsing is a run of kubectl prism ui.
type browsing struct {
	explaining
	port       int
	prometheus string
}

func uiCommand(v *viewer) *cobra.Command {
	b := &browsing{explaining: explaining{viewer: v}}
	command := &cobra.Command{
		Use:   "ui",
		Short: "Show the GPUs of the cluster, and why pods wait, in a browser",
		Long: "Serves a page on the loopback interface until interrupted, and prints its URL: nodes with their GPUs, claims, taints and utilization, and the " +
			"pods that wait for GPUs with the cause. The page reads the cluster with the rights of the kubeconfig, and changes nothing. Only the browser " +
			"that opens the printed URL can read it. For a cluster that another machine reaches, forward the port: ssh -L 8123:127.0.0.1:8123 HOST " +
			"kubectl prism ui --port 8123.",
		Example: "  kubectl prism ui\n" +
			"  kubectl prism ui --port 8123 --prometheus monitoring/prometheus-operated:9090",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return b.run(command.Context()) },
	}
	b.Bind(command.Flags())
	command.Flags().IntVar(&b.port, "port", 0, "Port of the page; 0 chooses a free one.")
	command.Flags().StringVar(&b.nodeSelector, "node-selector", "", "Labels of the nodes to include, such as zone=a.")
	command.Flags().StringVar(&b.prometheus, "prometheus", "", "URL of Prometheus, or namespace/service:port to reach it through the API server.")
	command.Flags().StringVar(&b.gates, "feature-gates", "", gatesUsage)
	return command
}

// run serves the page until the context ends.
func (b *browsing) run(ctx context.Context) (err error) {
	if b.port < 0 || b.port > 65535 {
		return fmt.Errorf("--port: must be between 0 and 65535, got %d", b.port)
	}
	if b.client, err = b.Connect(); err != nil {
		return err
	}
	if b.features, err = view.Features(ctx, b.client, b.gates); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)))
	if err != nil {
		return fmt.Errorf("opening the port of the page: %w; choose another --port", err)
	}
	from := ui.Source{Watch: b.watch, Explain: b.explainPod, Loads: b.loads}
	return ui.Serve(ctx, listener, b.about(time.Time{}), from, func(url string) {
		_, _ = fmt.Fprintf(b.Out, "GPUs of %s: open %s\nInterrupt (Ctrl+C) ends it.\n", safe(b.source()), url)
	})
}

// watch watches the cluster.
func (b *browsing) watch(ctx context.Context, draw func(*clusterview.Cluster, []string) error) error {
	options := view.Options{
		Driver: b.client.Driver, AllDrivers: true, Namespace: b.client.Namespace, NodeSelector: b.nodeSelector, Pods: true, AllPods: true,
	}
	return view.Watch(ctx, b.client, options, func(c *clusterview.Cluster, missing []view.Missing) error {
		b.note(missing)
		return draw(c, sentences(missing))
	})
}

// sentences are the lines about missing rights.
func sentences(missing []view.Missing) (all []string) {
	for _, right := range missing {
		all = append(all, right.String())
	}
	return all
}

// about describes the picture. The page shows the name of the context.
func (x *explaining) about(at time.Time) ui.About {
	return ui.About{Driver: x.client.Driver, Source: x.source(), Time: at}
}

// source is the name of the context, or the address of the API server.
func (x *explaining) source() string {
	if x.Flags.Context != nil && *x.Flags.Context != "" {
		return *x.Flags.Context
	}
	if raw, err := x.Flags.ToRawKubeConfigLoader().RawConfig(); err == nil && raw.CurrentContext != "" {
		return raw.CurrentContext
	}
	return "this cluster"
}

// explainPod explains a pod of a picture.
func (x *explaining) explainPod(ctx context.Context, c *clusterview.Cluster, pod *clusterview.Pod) (*explain.Explanation, error) {
	e, err := x.explain(ctx, explain.NewSolver(c, x.features), &subject{pod: pod})
	if err != nil {
		return nil, err
	}
	return e.Explanation, nil
}

// loads reads how busy the GPUs are, as kubectl prism top does.
func (b *browsing) loads(ctx context.Context, c *clusterview.Cluster) (map[string]ui.Load, error) {
	var samples []usage.Sample
	var err error
	if b.prometheus != "" {
		samples, err = usage.Prometheus(ctx, b.client, b.prometheus)
	} else {
		samples, _, err = usage.Exporters(ctx, b.client, func(node string) bool { return c.FindNode(node) != nil })
	}
	if err != nil {
		return nil, err
	}
	all := map[string]ui.Load{}
	for uuid, gpu := range usage.Of(samples).GPUs {
		load := ui.Load{Utilization: gpu.Utilization}
		if gpu.MemoryUsed != nil {
			load.Memory = *gpu.MemoryUsed
		}
		if gpu.Power != nil {
			load.Power = *gpu.Power
		}
		all[uuid] = load
	}
	return all, nil
}

const (
	// explainedInPage is the number of waiting pods that a page in one file explains, pageTime the time for them.
	explainedInPage = 100
	pageTime        = 30 * time.Second
)

// writePage writes the page as one file, with explanations of waiting pods as far as time allows.
func (x *explaining) writePage(ctx context.Context, out io.Writer, c *clusterview.Cluster, missing []view.Missing) error {
	all := map[types.NamespacedName]*explain.Explanation{}
	limited, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	for _, pod := range ui.Waiting(c) {
		if len(all) == explainedInPage || limited.Err() != nil {
			break
		}
		e, err := x.explainPod(limited, c, pod)
		var refused *explain.Refused
		switch {
		case err == nil:
			all[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = e
		case !errors.As(err, &refused) && limited.Err() == nil:
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	about := x.about(x.client.Clock.Now())
	about.Missing = sentences(missing)
	return ui.Page(out, c, about, ui.Extra{Explanations: all})
}
