// Command prism-scale measures the cost of layouts for the scheduler; hack/bench-scale.sh runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/prism-gpu/prism/test/scale"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "prism-scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c := scale.Cluster{Progress: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}}
	file := flag.String("report", "", "file with the results, shared by the calls of one run")
	samples := flag.Int("samples", 300, "samples per filtered node")
	layout := flag.String("layout", "", "layout of the throughput")
	flag.StringVar(&c.Kubeconfig, "kubeconfig", "", "of the cluster")
	flag.StringVar(&c.Scheduler, "scheduler", "", "program")
	flag.StringVar(&c.ControllerManager, "controller-manager", "", "program")
	flag.StringVar(&c.APIServer, "apiserver", "", "program of the API server, which runs already")
	flag.StringVar(&c.Work, "work", os.TempDir(), "directory for logs")
	flag.IntVar(&c.Nodes, "nodes", 500, "fake nodes")
	flag.IntVar(&c.Pods, "pods", 500, "maximum number of pods of a phase")
	flag.DurationVar(&c.Limit, "limit", 45*time.Second, "time limit of a phase")
	flag.Parse()
	c.Full = 0.9
	report, err := load(*file)
	if err != nil {
		return err
	}
	switch verb := flag.Arg(0); verb {
	case "tables":
		err = report.Tables(ctx, *samples)
	case "throughput":
		err = throughput(ctx, &c, report, *layout)
	case "print":
		report.Write(os.Stdout)
		return nil
	default:
		return fmt.Errorf("unknown verb %q; valid verbs: tables, throughput, print", verb)
	}
	return errors.Join(err, save(*file, report))
}

// throughput measures one layout on empty and full nodes with each request for its smallest device.
func throughput(ctx context.Context, c *scale.Cluster, r *scale.Report, name string) error {
	l, err := scale.LayoutByName(name)
	if err != nil {
		return err
	}
	var phases []scale.Phase
	for _, full := range []bool{false, true} {
		for _, kind := range scale.ThroughputRequests(&l) {
			phases = append(phases, scale.Phase{RequestKind: kind, Full: full})
		}
	}
	rows, err := c.Throughput(ctx, &l, phases)
	r.Throughput = append(r.Throughput, rows...)
	return err
}

func load(file string) (*scale.Report, error) {
	report := &scale.Report{}
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) || file == "" {
		return report, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, report)
	}
	return report, err
}

func save(file string, report *scale.Report) error {
	if file == "" {
		report.Write(os.Stdout)
		return nil
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}
