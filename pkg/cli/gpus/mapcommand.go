package gpus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// mapping is a run of kubectl prism map.
type mapping struct {
	*viewer
	client *cluster.Client
	// node is the argument; "" for all nodes.
	node string
}

func mapCommand(v *viewer) *cobra.Command {
	m := &mapping{viewer: v}
	command := &cobra.Command{
		Use:   "map [NODE]",
		Short: "Show which pods use which parts of the GPUs",
		Long: "Draws the GPUs of a node, or of all nodes, as bars of memory: a letter is a MIG device, # a whole GPU, m the memory of MPS shares, t a " +
			"time-sliced GPU, . free memory, and x free memory that a taint withholds. Behind each bar are the free memory, the pods and the taints.",
		Example: "  kubectl prism map gpu-a07\n" +
			"  kubectl prism map --node-selector nvidia.com/gpu.family=hopper --watch\n" +
			"  kubectl prism map -o html > gpus.html",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			m.node = strings.Join(args, "")
			return m.run(command.Context())
		},
	}
	m.bind(command.Flags())
	command.Flags().Lookup("output").Usage = "Output format: wide, json, yaml, or html: the page of kubectl prism ui as one file."
	return command
}

// formatHTML is the format of the page as one file.
const formatHTML = "html"

func (m *mapping) run(ctx context.Context) (err error) {
	if m.format == formatHTML {
		return m.page(ctx)
	}
	if err := m.check(formatHTML); err != nil {
		return err
	}
	if m.client, err = m.Connect(); err != nil {
		return err
	}
	options := view.Options{Driver: m.client.Driver, Node: m.node, Namespace: m.client.Namespace, NodeSelector: m.nodeSelector, Pods: true}
	if m.watch {
		err := view.Watch(ctx, m.client, options, func(c *clusterview.Cluster, missing []view.Missing) error { return m.show(ctx, c, missing) })
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	c, missing, err := view.Read(ctx, m.client, options)
	if err != nil {
		return err
	}
	return m.show(ctx, c, missing)
}

// page writes the page as one file.
func (m *mapping) page(ctx context.Context) (err error) {
	switch {
	case m.watch:
		return errors.New("--watch: not supported with --output html; kubectl prism ui shows changes")
	case m.node != "":
		return errors.New("--output html: not supported for one node; --node-selector selects nodes")
	}
	x := &explaining{viewer: m.viewer}
	if x.client, err = m.Connect(); err != nil {
		return err
	}
	if x.features, err = view.Features(ctx, x.client, ""); err != nil {
		return err
	}
	c, missing, err := view.Read(ctx, x.client, view.Options{
		Driver: x.client.Driver, AllDrivers: true, Namespace: x.client.Namespace, NodeSelector: m.nodeSelector, Pods: true, AllPods: true,
	})
	if err != nil {
		return err
	}
	m.warn(c, missing, x.client.Clock.Now())
	if err := unread(missing, resourceSlices); err != nil {
		return err
	}
	if _, err := nodeGPUs(ctx, x.client, c, ""); err != nil {
		return err
	}
	return x.writePage(ctx, m.Out, c, missing)
}

// show draws the nodes.
func (m *mapping) show(ctx context.Context, c *clusterview.Cluster, missing []view.Missing) error {
	m.warn(c, missing, m.client.Clock.Now())
	if err := unread(missing, resourceSlices); err != nil {
		return err
	}
	gpus, err := nodeGPUs(ctx, m.client, c, m.node)
	if err != nil {
		return err
	}
	if done, err := encode(m.Out, m.format, map[string]any{"items": gpusJSON(gpus)}); done {
		return err
	}
	s := m.screen()
	var texts []string
	for len(gpus) > 0 {
		end := 1
		for end < len(gpus) && gpus[end].Node == gpus[0].Node {
			end++
		}
		texts = append(texts, nodeText(s, m.client.Driver, gpus[:end], m.wide()))
		gpus = gpus[end:]
	}
	return m.draw(strings.Join(texts, "\n"))
}

// nodeGPUs returns the GPUs of a node, or of all nodes for "".
func nodeGPUs(ctx context.Context, client *cluster.Client, c *clusterview.Cluster, node string) ([]*clusterview.GPU, error) {
	if node == "" {
		gpus := c.GPUs(client.Driver)
		if len(gpus) == 0 {
			return nil, noGPUs(ctx, client)
		}
		return gpus, nil
	}
	if n := c.FindNode(node); n != nil {
		gpus := n.GPUs(client.Driver)
		if len(gpus) == 0 {
			return nil, unpublished(ctx, client, node)
		}
		return gpus, nil
	}
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return nil, fmt.Errorf("node %s does not exist%s", node, similar(node, names))
}

// noGPUs explains that no node has ResourceSlices of the driver.
func noGPUs(ctx context.Context, client *cluster.Client) error {
	text := "no node has ResourceSlices of driver " + client.Driver
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return cluster.Explain("listing ResourceSlices", "list on resourceslices of resource.k8s.io", err)
	}
	var drivers []string
	for i := range list.Items {
		drivers = append(drivers, list.Items[i].Spec.Driver)
	}
	slices.Sort(drivers)
	if drivers = slices.Compact(drivers); len(drivers) > 0 {
		return fmt.Errorf("%s, but of: %s; set --driver-name if Prism has another name", text, strings.Join(drivers, ", "))
	}
	return fmt.Errorf("%s: the kubelet plugin runs on no node with GPUs; kubectl prism validate checks nodes", text)
}
