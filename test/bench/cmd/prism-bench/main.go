// Prism-bench measures the cost of a claim on its own node, and prints it as Markdown. It exits with 1 if a count exceeds its budget, and
// with 2 if it could not measure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/prism-gpu/prism/test/bench"
)

// limit is far longer than a run takes.
const limit = 20 * time.Minute

func main() {
	o := bench.Options{Progress: os.Stderr}
	kubeconfig := pflag.String("kubeconfig", "", "kubeconfig with the rights of an administrator")
	server := pflag.String("server", "", "address of the API server from this node; empty: the address in the kubeconfig")
	pflag.StringVar(&o.Node, "node-name", os.Getenv("NODE_NAME"), "name of the node on which this runs")
	pflag.StringVar(&o.Driver, "driver-name", "gpu.prism.dev", "name of the installed driver")
	pflag.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's directory")
	pflag.StringVar(&o.CDIRoot, "cdi-root", "/var/run/cdi", "directory of the installed driver's CDI specs")
	pflag.StringVar(&o.SimgpuRoot, "simgpu-root", "/run/nvidia/driver", "directory of the simulated NVIDIA driver")
	pflag.StringVar(&o.Binary, "binary", "", "the plugin's program")
	pflag.StringVar(&o.Example, "example", "", "the program of dra-example-driver")
	pflag.StringVar(&o.Before, "before", "", "directory with the plugin's and the controller's program of an earlier build")
	pflag.StringVar(&o.BeforeName, "before-name", "build before", "name of that build in the tables")
	pflag.StringVar(&o.Load, "gpu-load", "", "simgpu's program that works on a GPU")
	pflag.StringSliceVar(&o.Parts, "parts", nil, "parts to run, by name; empty: all")
	pflag.Parse()

	os.Exit(run(o, *kubeconfig, *server))
}

func run(o bench.Options, kubeconfig, server string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fail := func(code int, err error) int {
		fmt.Fprintf(os.Stderr, "prism-bench: %v\n", err)
		return code
	}
	var err error
	if o.API, err = clientcmd.BuildConfigFromFlags(server, kubeconfig); err != nil {
		return fail(2, fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err))
	}
	report, err := bench.Run(ctx, o)
	if err != nil {
		return fail(2, err)
	}
	if err := report.Markdown(os.Stdout); err != nil {
		return fail(2, err)
	}
	if err := report.Problems(); err != nil {
		return fail(1, err)
	}
	return 0
}
