package gpus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// Command returns the command kubectl prism gpu. The flags select the cluster and the user.
func Command(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "gpu",
		Short: "List GPUs and their taints, and take GPUs out of service for maintenance",
		Long: "Lists the GPUs of nodes with their taints, and takes a GPU out of service while the other GPUs of the node work. The commands write " +
			"annotations of the Node, which requires patch on nodes; the kubelet plugin of the node carries them out.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	c := &cluster.Connection{Flags: flags, IOStreams: streams}
	c.Bind(command.PersistentFlags())
	command.AddCommand(listCommand(c), drainCommand(c), undrainCommand(c), releaseCommand(c), healCommand(c))
	return command
}

// target contains the arguments that select a GPU, or all GPUs, of a node.
type target struct {
	all bool
}

// args validates the arguments NODE and GPU.
func (t *target) args(command *cobra.Command, args []string) error {
	switch {
	case t.all && len(args) == 1, !t.all && len(args) == 2:
		return nil
	case t.all && len(args) == 2:
		return errors.New("a GPU and --all are mutually exclusive")
	}
	usage := strings.TrimSuffix(command.UseLine(), " [flags]")
	return fmt.Errorf("a node and one of its GPUs are required, as in: %s; kubectl prism gpu list prints the GPUs", usage)
}

// selected is a GPU of a node, or all of them, and the annotations of the node.
type selected struct {
	*cluster.Client
	node        string
	annotations map[string]string
	// name is the name in keys of annotations: of the GPU, or maintenance.All.
	name string
	gpus []cluster.GPU
}

// choose reads the GPUs of the node and selects one, or all for the text "".
func choose(ctx context.Context, c *cluster.Connection, node, text string) (*selected, error) {
	client, err := c.Connect()
	if err != nil {
		return nil, err
	}
	annotations, err := cluster.Annotations(ctx, client.Metadata, node)
	if err != nil {
		return nil, err
	}
	list, err := cluster.Slices(ctx, client, client.Driver, node)
	if err != nil {
		return nil, err
	}
	s := &selected{Client: client, node: node, annotations: annotations[node], name: maintenance.All, gpus: cluster.GPUs(list)}
	known := inMaintenance(s.annotations, client.Driver)
	if len(list) == 0 && len(known) == 0 {
		return nil, unpublished(ctx, client, node)
	}
	if text == "" {
		return s, nil
	}
	gpu, err := cluster.Resolve(s.gpus, known, node, text)
	if err != nil {
		return nil, err
	}
	s.name, s.gpus = gpu.Name, []cluster.GPU{*gpu}
	return s, nil
}

// unpublished explains that a node has no ResourceSlices of the driver.
func unpublished(ctx context.Context, client *cluster.Client, node string) error {
	text := fmt.Sprintf("node %s has no ResourceSlices of driver %s", node, client.Driver)
	if others := cluster.Drivers(ctx, client, node); others != "" {
		return fmt.Errorf("%s, but of: %s; set --driver-name if Prism has another name", text, others)
	}
	return fmt.Errorf("%s: its kubelet plugin does not run; kubectl prism validate %s checks it", text, node)
}

// inMaintenance returns the names in the annotations for maintenance, maintenance.All among them.
func inMaintenance(annotations map[string]string, driver string) (names []string) {
	prefix := maintenance.Key(maintenance.Maintain, driver, "")
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// String names the GPU in messages.
func (s *selected) String() string {
	if s.name == maintenance.All {
		return "all GPUs of node " + s.node
	}
	return fmt.Sprintf("GPU %s of node %s", s.name, s.node)
}

// arguments are the arguments of a command for the same GPU.
func (s *selected) arguments() string {
	if s.name == maintenance.All {
		return s.node + " --all"
	}
	return s.node + " " + s.name
}

// place is the GPU, or maintenance.All, of the node.
func (s *selected) place() cluster.Place { return cluster.Place{Node: s.node, Name: s.name} }

// reason returns the reason of the GPU's maintenance; found is false without maintenance.
func (s *selected) reason() (reason string, found bool) {
	return reasonOf(s.annotations, s.Driver, s.name)
}

// reasonOf returns the reason of the maintenance of a GPU of a node; found is false without maintenance.
func reasonOf(annotations map[string]string, driver, name string) (reason string, found bool) {
	if reason, found = annotations[maintenance.Key(maintenance.Maintain, driver, name)]; found {
		return reason, true
	}
	reason, found = annotations[maintenance.Key(maintenance.Maintain, driver, maintenance.All)]
	return reason, found
}
