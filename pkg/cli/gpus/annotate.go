package gpus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// annotate changes annotations of the node; nil removes one. With dryRun the server validates the change only.
func (s *selected) annotate(ctx context.Context, change map[string]*string, dryRun bool) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": change}})
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: cluster.Manager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = s.CoreV1().Nodes().Patch(ctx, s.node, types.MergePatchType, patch, options)
	return cluster.Explain("annotating node "+s.node, "patch on nodes", err)
}

func undrainCommand(c *cluster.Connection) *cobra.Command {
	var t target
	command := &cobra.Command{
		Use:   "undrain NODE GPU|--all",
		Short: "Return a GPU to service",
		Long: "Ends the maintenance of a GPU, or of all GPUs of a node: new claims use it again, unless other findings taint it. GPUs are named by id, " +
			"index, UUID or device.",
		Example: "  kubectl prism gpu undrain node-1 gpu-5d3f61a2\n" +
			"  kubectl prism gpu undrain node-1 --all",
		Args: t.args,
		RunE: func(command *cobra.Command, args []string) error {
			s, err := choose(command.Context(), c, args[0], argument(args))
			if err != nil {
				return err
			}
			return undrain(command.Context(), c, s)
		},
	}
	command.Flags().BoolVar(&t.all, "all", false, "All GPUs of the node.")
	return command
}

// argument returns the second argument, if there is one.
func argument(args []string) string {
	if len(args) > 1 {
		return args[1]
	}
	return ""
}

func undrain(ctx context.Context, c *cluster.Connection, s *selected) error {
	change := map[string]*string{}
	for _, name := range inMaintenance(s.annotations, s.Driver) {
		if name == s.name || s.name == maintenance.All {
			change[maintenance.Key(maintenance.Maintain, s.Driver, name)] = nil
		}
	}
	_, node := s.annotations[maintenance.Key(maintenance.Maintain, s.Driver, maintenance.All)]
	whole := node && s.name != maintenance.All
	if len(change) > 0 {
		if err := s.annotate(ctx, change, false); err != nil {
			return err
		}
	}
	switch {
	case whole:
		return fmt.Errorf("%s stays drained, because all GPUs of the node are; kubectl prism gpu undrain %s --all returns them to service", s, s.node)
	case len(change) == 0:
		c.Print("%s not drained before", s)
	default:
		c.Print("%s undrained", s)
	}
	return nil
}

func releaseCommand(c *cluster.Connection) *cobra.Command {
	duration := maintenance.ReleaseDefault
	command := &cobra.Command{
		Use:   "release NODE GPU",
		Short: "Close Prism's sessions of the driver, so that a drained GPU can be reset",
		Long: "Has the kubelet plugin and the exporter of the node close their sessions of the NVIDIA driver for a while, since the driver resets no GPU " +
			"while a program has a session. The GPU must be drained, and allocated to no claim. Programs other than Prism's with a session are " +
			"listed in an Event of the Node.",
		Example: "  kubectl prism gpu release node-1 gpu-5d3f61a2\n" +
			"  kubectl prism gpu release node-1 0 --for 5m",
		Args: (&target{}).args,
		RunE: func(command *cobra.Command, args []string) error {
			if duration <= 0 || duration > maintenance.ReleaseMax {
				return fmt.Errorf("--for: must be greater than 0 and less than or equal to %s, got %s", maintenance.ReleaseMax, duration)
			}
			s, err := choose(command.Context(), c, args[0], args[1])
			if err != nil {
				return err
			}
			return release(command.Context(), c, s, duration)
		},
	}
	command.Flags().DurationVar(&duration, "for", duration, "How long, at most "+maintenance.ReleaseMax.String()+".")
	return command
}

func release(ctx context.Context, c *cluster.Connection, s *selected, duration time.Duration) error {
	if _, found := s.reason(); !found {
		return fmt.Errorf("%s is not drained: only a drained GPU is released; kubectl prism gpu drain %s --evict drains it", s, s.arguments())
	}
	all, err := cluster.Claims(ctx, s, s.Driver)
	if err != nil {
		c.Warn("%v; the kubelet plugin refuses the release if a claim uses the GPU", err)
	}
	if claims := using(all, s.Driver, s.place()); len(claims) > 0 {
		return fmt.Errorf("%s is allocated to %s; kubectl prism gpu drain %s --evict ends that", s, claimNames(claims), s.arguments())
	}
	until := s.Clock.Now().Add(duration).UTC().Format(time.RFC3339)
	if err := s.annotate(ctx, map[string]*string{maintenance.Key(maintenance.Release, s.Driver, s.name): &until}, false); err != nil {
		return err
	}
	c.Print("%s is being released until %s; an Event of the Node lists other programs that use its GPUs: kubectl get events -A --field-selector "+
		"involvedObject.kind=Node,involvedObject.name=%s", s, until, s.node)
	return nil
}

func healCommand(c *cluster.Connection) *cobra.Command {
	return &cobra.Command{
		Use:   "heal NODE GPU",
		Short: "Declare a GPU repaired",
		Long: "Ends taints of a GPU that only an administrator can end: xid, and taints that returned too often. Other taints end when the driver " +
			"reports no problem. If the problem continues, an Event of the Node states the reason.",
		Example: "  kubectl prism gpu heal node-1 gpu-5d3f61a2",
		Args:    (&target{}).args,
		RunE: func(command *cobra.Command, args []string) error {
			ctx := command.Context()
			s, err := choose(ctx, c, args[0], args[1])
			if err != nil {
				return err
			}
			before := s.Clock.Now().UTC().Format(time.RFC3339)
			if err := s.annotate(ctx, map[string]*string{maintenance.Key(maintenance.Heal, s.Driver, s.name): &before}, false); err != nil {
				return err
			}
			c.Print("findings of %s that began before %s are being ended; kubectl prism gpu list %s shows the rest", s, before, s.node)
			return nil
		},
	}
}
