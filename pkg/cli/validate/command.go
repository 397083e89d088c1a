package validate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

const (
	// defaultTimeout includes scheduling, a new MIG device, and the start of a container.
	defaultTimeout = 3 * time.Minute
	// atOnce is the number of nodes that are validated at once.
	atOnce = 16
)

// flags are the flags of the command.
type flags struct {
	all        bool
	gpu, image string
	timeout    time.Duration
}

// Command returns the command kubectl prism validate. The flags select the cluster, the user and the namespace of the pods.
func Command(of *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	c := &cluster.Connection{Flags: of, IOStreams: streams}
	var f flags
	command := &cobra.Command{
		Use:   "validate NODE...|--all",
		Short: "Check whether pods can use the GPUs of nodes",
		Long: "Checks the driver, the container runtime and the kubelet plugin of nodes, then creates a claim and a pod on each node in the namespace, which " +
			"checks its GPU with CUDA. It prints a line for each stage: ok, or what to change. The pods and claims are deleted at the end, also after " +
			"an interrupt. The last line is \"all validations are successful\", or the exit status is 1. With --gpu the claim gets a device of that GPU, " +
			"also during its maintenance.",
		Example: "  kubectl prism validate node-1 node-2\n" +
			"  kubectl prism validate --all --timeout 5m\n" +
			"  kubectl prism validate node-1 --gpu gpu-5d3f61a2",
		Args: func(_ *cobra.Command, nodes []string) error { return f.check(nodes) },
		RunE: func(command *cobra.Command, nodes []string) error { return f.run(command.Context(), c, nodes) },
	}
	c.Bind(command.Flags())
	command.Flags().BoolVar(&f.all, "all", false, "All nodes with the kubelet plugin.")
	command.Flags().StringVar(&f.gpu, "gpu", "", "GPU of the node, by id, index, UUID or device. The default is any free device of the node.")
	command.Flags().StringVar(&f.image, "image", "", "Image with prism-validate. The default is the image of the kubelet plugin on the node.")
	command.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "How long to wait for the pod of each node.")
	return command
}

// check validates the arguments.
func (f *flags) check(nodes []string) error {
	switch {
	case f.all == (len(nodes) > 0):
		return errors.New("either nodes or --all are required; kubectl prism gpu list prints the nodes")
	case f.gpu != "" && len(nodes) != 1:
		return errors.New("--gpu: requires one node")
	case f.timeout <= 0:
		return fmt.Errorf("--timeout: must be greater than 0, got %s", f.timeout)
	}
	return nil
}

// nodeFacts are objects that concern a node.
type nodeFacts struct {
	slices  []resourceapi.ResourceSlice
	plugins []corev1.Pod
}

func (f *flags) run(ctx context.Context, c *cluster.Connection, nodes []string) error {
	client, err := c.Connect()
	if err != nil {
		return err
	}
	only := ""
	if len(nodes) == 1 {
		only = nodes[0]
	}
	facts, err := gather(ctx, client, only)
	if err != nil {
		return err
	}
	if f.all {
		if nodes = slices.Sorted(maps.Keys(facts)); len(nodes) == 0 {
			return fmt.Errorf("no node has the kubelet plugin of driver %s: install the chart of Prism, or set --driver-name", client.Driver)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	var (
		print  sync.Mutex
		failed []string
		left   sync.WaitGroup
	)
	slots := make(chan struct{}, atOnce)
	for _, name := range nodes {
		slots <- struct{}{}
		left.Go(func() {
			defer func() { <-slots }()
			lines, ok := f.node(ctx, client, name, facts[name])
			print.Lock()
			defer print.Unlock()
			for _, line := range lines {
				c.Print("%s: %s", name, line)
			}
			if !ok {
				failed = append(failed, name)
			}
		})
	}
	left.Wait()
	if len(failed) > 0 {
		slices.Sort(failed)
		return fmt.Errorf("validation of %s failed", reports.Nodes(failed))
	}
	c.Print("all validations are successful")
	return nil
}

// pluginLabels select the pods of kubelet plugins.
const pluginLabels = "app.kubernetes.io/component=kubelet-plugin"

// gather reads the ResourceSlices and plugins of a node, or of all nodes for "".
func gather(ctx context.Context, client *cluster.Client, node string) (map[string]nodeFacts, error) {
	facts := map[string]nodeFacts{}
	list, err := cluster.Slices(ctx, client, client.Driver, node)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if name := list[i].Spec.NodeName; name != nil {
			of := facts[*name]
			of.slices = append(of.slices, list[i])
			facts[*name] = of
		}
	}
	options := metav1.ListOptions{LabelSelector: pluginLabels}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	pods, err := cluster.Pods(ctx, client, options)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if serves(&pods[i], client.Driver) && pods[i].Spec.NodeName != "" {
			of := facts[pods[i].Spec.NodeName]
			of.plugins = append(of.plugins, pods[i])
			facts[pods[i].Spec.NodeName] = of
		}
	}
	return facts, nil
}

// serves reports whether a pod is a kubelet plugin of a driver.
func serves(pod *corev1.Pod, driver string) bool {
	for i := range pod.Spec.Containers {
		for _, env := range pod.Spec.Containers[i].Env {
			if env.Name == "PRISM_DRIVER_NAME" {
				return env.Value == driver
			}
		}
	}
	return false
}
