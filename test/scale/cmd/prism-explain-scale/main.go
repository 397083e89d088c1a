// Command prism-explain-scale measures what kubectl prism explain costs in a large cluster; hack/bench-scale.sh runs it. It fails if a budget
// is exceeded.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"github.com/prism-gpu/prism/test/scale/explaining"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "prism-explain-scale:", err)
		os.Exit(1)
	}
}

// parts are the measurements, each of which has a process of its own.
var parts = map[string]func(context.Context, string) (*explaining.Result, error){
	"explain": explaining.Explain, "decode": explaining.Decode, "reduce": explaining.Reduce,
}

func run(ctx context.Context) error {
	nodes := flag.Int("nodes", 1000, "nodes with eight GPUs")
	part := flag.String("part", "", "measure this part of the cluster at the address that follows, and print the result as JSON")
	flag.Parse()
	if *part != "" {
		measure := parts[*part]
		if measure == nil {
			return fmt.Errorf("unknown part %q", *part)
		}
		result, err := measure(ctx, flag.Arg(0))
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	}
	var failed error
	for _, fill := range []struct {
		name string
		full float64
	}{{"half full", 0.5}, {"full", 1}} {
		if err := measure(ctx, *nodes, fill.name, fill.full); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", fill.name, err))
		}
		runtime.GC()
	}
	return failed
}

// measure measures a cluster, prints the results, and compares them with the budgets.
func measure(ctx context.Context, nodes int, name string, full float64) error {
	server, err := explaining.NewServer(ctx, nodes, full)
	if err != nil {
		return err
	}
	api := httptest.NewServer(server)
	defer api.Close()
	results := map[string]*explaining.Result{}
	for _, part := range []string{"explain", "decode", "reduce"} {
		if results[part], err = child(ctx, part, api.URL); err != nil {
			return err
		}
		if part == "explain" {
			results[part].Counts = server.Counts()
		}
	}
	e, decoded, reduced := results["explain"], results["decode"], results["reduce"]
	fmt.Printf("kubectl prism explain, %d nodes × 8 GPUs, %s\n", nodes, name)
	fmt.Printf("  requests: %d LIST of %d pages, %d writes\n", e.Counts.Lists, e.Counts.Pages, e.Counts.Writes)
	fmt.Printf("  heap of ResourceSlices: %.1f MiB, decoded %.0f MiB\n", mib(reduced.Heap), mib(decoded.Heap))
	fmt.Printf("  RSS: %.0f MiB; CPU: reading %.2fs, decoding ResourceSlices %.2fs\n", mib(e.RSS), e.Read, decoded.Read)
	fmt.Printf("  %d distinct pools\n", e.Pools)
	for _, pod := range slices.Sorted(maps.Keys(e.Calls)) {
		fmt.Printf("  %5d calls of the allocator, %.2fs: %s\n", e.Calls[pod], e.Explain[pod], e.Sentences[pod])
	}
	return e.Check(decoded, reduced)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// child measures a part in a process of its own.
func child(ctx context.Context, part, address string) (*explaining.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, self, "--part", part, address)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("measuring %s: %w", part, err)
	}
	result := &explaining.Result{}
	return result, json.Unmarshal(out, result)
}
