package gpus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

const (
	// taintTime limits the wait for the taint, which the kubelet plugin publishes within seconds.
	taintTime     = 30 * time.Second
	taintInterval = time.Second
)

// draining contains the flags of drain.
type draining struct {
	target
	reason               string
	evict, force, dryRun bool
	timeout              time.Duration
}

func drainCommand(c *cluster.Connection) *cobra.Command {
	var d draining
	command := &cobra.Command{
		Use:   "drain NODE GPU|--all",
		Short: "Take a GPU out of service, and evict the pods that use it",
		Long: "Taints all devices of a GPU, or of all GPUs of a node, so that no new claim uses them, until undrain. GPUs are named by id, index, UUID or " +
			"device. With --evict it evicts the pods with claims on the GPU, respects their PodDisruptionBudgets, and waits until the GPU is " +
			"allocated to no claim. It evicts pods of DaemonSets and pods without controller only with --force, and waits for them otherwise.",
		Example: "  kubectl prism gpu drain node-1 gpu-5d3f61a2 --reason 'row remapping failed, ticket 4711'\n" +
			"  kubectl prism gpu drain node-1 0 --evict --timeout 10m\n" +
			"  kubectl prism gpu drain node-1 --all --evict --force --dry-run",
		Args: func(command *cobra.Command, args []string) error { return d.args(command, args) },
		RunE: func(command *cobra.Command, args []string) error {
			if d.force && !d.evict {
				return errors.New("--force: requires --evict")
			}
			if d.timeout < 0 {
				return fmt.Errorf("--timeout: must be greater than or equal to 0, got %s", d.timeout)
			}
			return d.run(command.Context(), c, args)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&d.all, "all", false, "All GPUs of the node, and GPUs that are added later.")
	flags.StringVar(&d.reason, "reason", "", "Reason, which kubectl prism gpu list and pods show.")
	flags.BoolVar(&d.evict, "evict", false, "Evict the pods with claims on the GPU, and wait until no claim uses it.")
	flags.BoolVar(&d.force, "force", false, "Also evict pods of DaemonSets and pods without controller, which are not created again.")
	flags.DurationVar(&d.timeout, "timeout", 0, "How long to wait for the taint and the pods; 0 is no limit.")
	flags.BoolVar(&d.dryRun, "dry-run", false, "Print the changes and evictions; nothing is changed.")
	return command
}

func (d *draining) run(ctx context.Context, c *cluster.Connection, args []string) error {
	s, err := choose(ctx, c, args[0], argument(args))
	if err != nil {
		return err
	}
	if d.reason == "" { // draining a drained GPU, to evict its pods, does not remove the reason
		d.reason = s.annotations[maintenance.Key(maintenance.Maintain, s.Driver, s.name)]
	}
	if err := s.annotate(ctx, map[string]*string{maintenance.Key(maintenance.Maintain, s.Driver, s.name): &d.reason}, d.dryRun); err != nil {
		return err
	}
	e := &eviction{client: s, driver: s.Driver, gpu: s.place(), force: d.force, print: c.Print}
	if d.dryRun {
		c.Print("%s would be drained (dry run)", s)
		if d.evict {
			return e.preview(ctx)
		}
		return nil
	}
	if d.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("claims still use %s after %s", s, d.timeout))
		defer stop()
	}
	if err := d.drain(ctx, c, s, e); err != nil {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = context.Cause(ctx)
		case errors.Is(err, context.Canceled):
			err = errors.New("interrupted")
		}
		return fmt.Errorf("%w; to return %s to service, run kubectl prism gpu undrain %s", err, s, s.arguments())
	}
	return nil
}

// drain waits for the taint, and evicts the pods.
func (d *draining) drain(ctx context.Context, c *cluster.Connection, s *selected, e *eviction) error {
	if err := s.tainted(ctx); err != nil {
		return err
	}
	c.Print("%s drained", s)
	if !d.evict {
		return nil
	}
	if err := e.run(ctx); err != nil {
		return err
	}
	c.Print("no claims left: %s", s)
	return nil
}

// tainted waits until the kubelet plugin has tainted all devices of the GPUs, or published none of them. Without the taint, evicted pods could
// return to the GPU.
func (s *selected) tainted(ctx context.Context) error {
	key := s.Driver + "/" + maintenanceTaint
	check := func(ctx context.Context) (bool, error) {
		list, err := cluster.Slices(ctx, s, s.Driver, s.node)
		if err != nil {
			return false, err
		}
		for _, gpu := range cluster.GPUs(list) {
			if (s.name == maintenance.All || s.name == gpu.Name) && !gpu.Tainted(key) {
				return false, nil
			}
		}
		return true, nil
	}
	err := wait.PollUntilContextTimeout(ctx, taintInterval, taintTime, true, check)
	if wait.Interrupted(err) && !errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("the kubelet plugin of node %s has not tainted the devices yet, so no pod was evicted; kubectl prism validate %s checks the plugin",
			s.node, s.node)
	}
	return err
}
