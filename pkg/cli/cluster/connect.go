package cluster

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// DefaultDriver is the chart's default of driverName.
const DefaultDriver = "gpu.prism.dev"

// Manager is the field manager of changes by the commands.
const Manager = "kubectl-prism"

// Connection contains the flags of the cluster and of the driver, and the output of a command.
type Connection struct {
	Flags *genericclioptions.ConfigFlags
	genericiooptions.IOStreams
	// Driver is the name of the DRA driver.
	Driver string
}

// Bind adds the flag of the driver's name.
func (c *Connection) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&c.Driver, "driver-name", DefaultDriver, "Name of the DRA driver, the chart's value driverName.")
}

// Print writes a line of the result.
func (c *Connection) Print(format string, values ...any) {
	_, _ = fmt.Fprintln(c.Out, reports.Escape(fmt.Sprintf(format, values...)))
}

// Warn writes a line to stderr.
func (c *Connection) Warn(format string, values ...any) {
	_, _ = fmt.Fprintln(c.ErrOut, reports.Escape("Warning: "+fmt.Sprintf(format, values...)))
}

// Client requests objects of the cluster as the user of the kubeconfig.
type Client struct {
	kubernetes.Interface
	Metadata metadata.Interface
	// Driver is the name of the DRA driver, Namespace the namespace of the flags or of the kubeconfig.
	Driver, Namespace string
	// Clock is the clock of the API server.
	Clock *reports.Clock
}

// Connect returns a client.
func (c *Connection) Connect() (*Client, error) {
	namespace, _, err := c.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("loading the namespace: %w; correct --kubeconfig or --context", err)
	}
	config, err := c.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w; set --kubeconfig, or KUBECONFIG", err)
	}
	config.QPS, config.Burst = 50, 100 // a drained node may have many pods, and lists many pages
	clock := &reports.Clock{}
	config.Wrap(clock.Wrap)
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	return &Client{typed, partial, c.Driver, namespace, clock}, nil
}
