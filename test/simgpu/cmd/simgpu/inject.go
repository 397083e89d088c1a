package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// injectOptions are the selectors that all faults share.
type injectOptions struct {
	root   string
	gpu    int
	call   string
	code   string
	delay  time.Duration
	period time.Duration
	times  int
	device string
	bundle string
	gi     int
}

func injectCommand() *cobra.Command {
	o := &injectOptions{}
	c := &cobra.Command{Use: "inject", Short: "make the node misbehave; prints the id of the fault"}
	f := c.PersistentFlags()
	f.StringVar(&o.root, "root", defaultRoot, "driver root of the node")
	f.IntVar(&o.gpu, "gpu", model.AnyGPU, "GPU in PCI order; -1: any")
	f.StringVar(&o.call, "call", "", "NVML function, or a pattern such as nvmlDeviceGet*; empty: all")
	f.DurationVar(&o.period, "for", 0, "how long; 0: until it is cleared")
	f.IntVar(&o.times, "times", 0, "how many calls; 0: all")
	c.AddCommand(o.faultCommands()...)
	c.AddCommand(o.driverCommands()...)
	c.AddCommand(o.deviceCommands()...)
	c.AddCommand(o.healthCommands()...)
	return c
}

func (o *injectOptions) until() time.Time {
	if o.period == 0 {
		return time.Time{}
	}
	return time.Now().Add(o.period)
}

// plain returns a subcommand without arguments.
func plain(use, short string, run func(*cobra.Command) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return run(c) }}
}

func (o *injectOptions) faultCommands() []*cobra.Command {
	lost := plain("gpu-lost", "a GPU falls off the bus: its calls answer GPU_IS_LOST", func(c *cobra.Command) error {
		if o.gpu < 0 {
			return errors.New("losing a GPU: --gpu is missing")
		}
		return o.send(c, daemon.Command{Lose: &daemon.Loss{GPU: o.gpu, Until: o.until()}})
	})
	initFails := plain("init-fails", "nvmlInit answers an error", func(c *cobra.Command) error {
		o.call = "nvmlInit*"
		return o.fault(c, model.EffectError)
	})
	initFails.Flags().StringVar(&o.code, "code", "999", "NVML return code, as number or text")
	failing := plain("error", "calls answer an error", func(c *cobra.Command) error { return o.fault(c, model.EffectError) })
	failing.Flags().StringVar(&o.code, "code", "999", "NVML return code, as number or text")
	hang := plain("hang", "calls do not answer until the fault ends", func(c *cobra.Command) error { return o.fault(c, model.EffectHang) })
	slow := plain("slow", "calls answer late", func(c *cobra.Command) error { return o.fault(c, model.EffectSlow) })
	slow.Flags().DurationVar(&o.delay, "delay", time.Second, "how late")
	xid := &cobra.Command{
		Use: "xid CODE", Short: "a GPU reports an XID error", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.xid(c, args[0]) },
	}
	xid.Flags().IntVar(&o.gi, "gi", -1, "id of the GPU instance that it belongs to; -1: the GPU")
	clearing := &cobra.Command{
		Use: "clear [ID]", Short: "end one fault, or all faults and problems of GPUs", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.clear(c, args) },
	}
	gone := plain("gpu-gone", "a GPU is lost, and is not listed by new sessions", func(c *cobra.Command) error {
		if o.gpu < 0 {
			return errors.New("losing a GPU: --gpu is missing")
		}
		return o.send(c, daemon.Command{Lose: &daemon.Loss{GPU: o.gpu, Until: o.until(), Unlisted: true}})
	})
	replaced := plain("gpu-replaced", "another GPU of the same board is in the place of a GPU from the next boot on", func(c *cobra.Command) error {
		if o.gpu < 0 {
			return errors.New("replacing a GPU: --gpu is missing")
		}
		return o.send(c, daemon.Command{Replace: &o.gpu})
	})
	return []*cobra.Command{lost, gone, replaced, initFails, failing, hang, slow, xid, clearing, o.migLatency(), o.hold(), o.release(), o.persistenced(true), o.persistenced(false), o.sampleHold()}
}

func (o *injectOptions) migLatency() *cobra.Command {
	latency := &model.MIGLatency{}
	c := plain("mig-latency", "what changes a GPU takes time from now on; without flags: none", func(c *cobra.Command) error {
		return o.send(c, daemon.Command{MIGLatency: latency})
	})
	f := c.Flags()
	f.DurationVar(&latency.SetMode, "set-mode", 0, "a change of the MIG mode")
	f.DurationVar(&latency.CreateGPUInstance, "create-gi", 0, "creating a GPU instance")
	f.DurationVar(&latency.DestroyGPUInstance, "destroy-gi", 0, "destroying a GPU instance")
	f.DurationVar(&latency.CreateComputeInstance, "create-ci", 0, "creating a compute instance")
	f.DurationVar(&latency.DestroyComputeInstance, "destroy-ci", 0, "destroying a compute instance")
	return c
}

// persistenced returns persistence-on or persistence-off.
func (o *injectOptions) persistenced(on bool) *cobra.Command {
	use, short := "persistence-on", "nvidia-persistenced keeps a GPU initialised, as on a new node"
	if !on {
		use, short = "persistence-off", "nothing keeps a GPU initialised: its compute mode is lost with its last client"
	}
	return plain(use, short, func(c *cobra.Command) error {
		if o.gpu < 0 {
			return errors.New("setting persistence of a GPU: --gpu is missing")
		}
		return o.send(c, daemon.Command{Persistenced: &daemon.Persistenced{GPU: o.gpu, On: on}})
	})
}

func (o *injectOptions) sampleHold() *cobra.Command {
	return &cobra.Command{
		Use: "sample-hold free|shutdown", Short: "a sample of GPM holds its GPU instance until it is freed, or until nvmlShutdown", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			hold := model.SampleHold(args[0])
			return o.send(c, daemon.Command{SampleHold: &hold})
		},
	}
}

func (o *injectOptions) hold() *cobra.Command {
	return &cobra.Command{
		Use: "hold UUID", Short: "a process uses a GPU or a MIG device: what would take it away answers IN_USE", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.send(c, daemon.Command{Hold: &args[0]}) },
	}
}

func (o *injectOptions) release() *cobra.Command {
	return &cobra.Command{
		Use: "release [UUID]", Short: "end the processes that hold one GPU or MIG device, or any", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			uuid := ""
			if len(args) == 1 {
				uuid = args[0]
			}
			return o.send(c, daemon.Command{Release: &uuid})
		},
	}
}

func (o *injectOptions) fault(c *cobra.Command, effect model.Effect) error {
	fault := model.Fault{Effect: effect, GPU: o.gpu, Call: o.call, Times: o.times, Until: o.until()}
	switch effect {
	case model.EffectError:
		code, err := model.ParseReturn(o.code)
		if err != nil {
			return err
		}
		fault.Return = code
	case model.EffectSlow:
		fault.Delay = o.delay
	case model.EffectHang:
	}
	return o.send(c, daemon.Command{Fault: &fault})
}

func (o *injectOptions) xid(c *cobra.Command, text string) error {
	code, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the XID code: %w", err)
	}
	if o.gpu < 0 {
		return errors.New("raising an XID: --gpu is missing")
	}
	raised := daemon.XID{GPU: o.gpu, Code: code}
	if o.gi >= 0 {
		instance := uint32(o.gi)
		raised.Instance = &instance
	}
	return o.send(c, daemon.Command{XID: &raised})
}

func (o *injectOptions) clear(c *cobra.Command, args []string) error {
	id := 0
	if len(args) == 1 {
		var err error
		if id, err = strconv.Atoi(args[0]); err != nil || id < 1 {
			return fmt.Errorf("reading the id of a fault: %q is not a number above 0", args[0])
		}
	}
	return o.send(c, daemon.Command{Clear: &id})
}

func (o *injectOptions) send(c *cobra.Command, command daemon.Command) error {
	result, err := send(o.root, command)
	if err != nil || result.Fault == 0 {
		return err
	}
	return json.NewEncoder(c.OutOrStdout()).Encode(map[string]int{"fault": result.Fault})
}

func (o *injectOptions) driverCommands() []*cobra.Command {
	unload := plain("driver-unload", "the kernel module goes: calls answer DRIVER_NOT_LOADED", func(*cobra.Command) error {
		return o.onNode(func(in *layout.Install, _ *model.Node) error { return unloadDriver(in) })
	})
	load := plain("driver-load", "the kernel module comes back; settings are reset", func(*cobra.Command) error {
		return o.onNode(loadDriver)
	})
	upgrade := &cobra.Command{
		Use: "driver-upgrade VERSION", Short: "unload, install another driver version, load", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.upgrade(c.Context(), args[0]) },
	}
	upgrade.Flags().StringVar(&o.bundle, "bundle", "", "directory of built driver bundles (default: the user cache directory)")
	return []*cobra.Command{unload, load, upgrade}
}

// onNode runs f with the node's files and a model of its hardware.
func (o *injectOptions) onNode(f func(*layout.Install, *model.Node) error) error {
	install, err := layout.Open(o.root)
	if err != nil {
		return err
	}
	node, err := model.New(install.Spec)
	if err != nil {
		return err
	}
	return f(install, node)
}

func unloadDriver(in *layout.Install) error {
	if _, err := daemon.Send(in.Paths, daemon.Command{Unload: true}); err != nil {
		return err
	}
	return in.UnloadProc()
}

func loadDriver(in *layout.Install, node *model.Node) error {
	if err := in.LoadProc(node); err != nil {
		return err
	}
	_, err := daemon.Send(in.Paths, daemon.Command{Load: in.Spec.Driver})
	return err
}

func (o *injectOptions) upgrade(ctx context.Context, text string) error {
	version, err := model.ParseDriverVersion(text)
	if err != nil {
		return err
	}
	return o.onNode(func(in *layout.Install, _ *model.Node) error {
		spec := in.Spec
		spec.Driver = version
		node, err := model.New(spec)
		if err != nil {
			return err
		}
		bundleDir, err := ensureBundle(ctx, o.bundle, version)
		if err != nil {
			return err
		}
		if err := unloadDriver(in); err != nil {
			return err
		}
		if err := in.Upgrade(version, bundleDir); err != nil {
			return err
		}
		return loadDriver(in, node)
	})
}

func (o *injectOptions) deviceCommands() []*cobra.Command {
	missing := plain("device-node-missing", "the device node of a GPU, or another one, is removed", func(*cobra.Command) error {
		return o.onNode(func(in *layout.Install, node *model.Node) error {
			if o.device == "" {
				name, err := layout.GPUDeviceNode(node, o.gpu)
				if err != nil {
					return err
				}
				o.device = name
			}
			return in.RemoveDeviceNode(o.device)
		})
	})
	missing.Flags().StringVar(&o.device, "node", "", "name of the node, such as nvidia-uvm, in place of --gpu")
	restore := plain("device-node-restore", "all missing device nodes come back", func(*cobra.Command) error {
		return o.onNode(func(in *layout.Install, node *model.Node) error { return in.RestoreDeviceNodes(node) })
	})
	return []*cobra.Command{missing, restore}
}
