package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// folder is the folder of the pages, below the root of the repository.
const folder = "docs/reference"

// page is one generated file.
type page struct {
	// name is the path below folder.
	name string
	// write returns the content; root is the folder of go.mod.
	write func(root string) (string, error)
}

// pages lists every file of docs/reference.
func pages() []page {
	all := []page{
		{"README.md", index},
		{"resourceslices.md", devicesPage},
		{"events.md", eventsPage},
		{"metrics.md", metricsPage},
		{"../metrics.md", gpuMetricsPage},
		{"flags.md", flagsPage},
		{"kubectl-prism.md", cliPage},
		{"chart-values.md", valuesPage},
		{"kubernetes-versions.md", versionsPage},
		{"migration.md", migrationPage},
		boundsPage("security.md", tenantBounds),
		boundsPage("reliability.md", recoveryBounds),
	}
	for _, k := range kinds() {
		all = append(all, page{k.page(), k.markdown}, page{k.schema(), k.jsonSchema})
	}
	return all
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "reference: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	for _, p := range pages() {
		content, err := p.write(root)
		if err != nil {
			return fmt.Errorf("generating %s: %w", p.name, err)
		}
		file := filepath.Join(root, folder, p.name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moduleRoot is the folder of go.mod at or above the working directory.
func moduleRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		parent := filepath.Dir(at)
		if parent == at {
			return "", errors.New("finding go.mod: run this inside the repository")
		}
		at = parent
	}
}

// index is the list of the pages.
func index(string) (string, error) {
	out := newText("Reference", "the described code")
	out.para("Every page here is generated, and `make check` fails if one is out of date.")
	t := table{head: []string{"page", "content"}}
	for _, k := range kinds() {
		t.row("["+k.page()+"]("+k.page()+"), [JSON Schema]("+k.schema()+")", "the fields of `"+k.name+"`: "+k.use)
	}
	t.row("[resourceslices.md](resourceslices.md)", "pools, devices, attributes, capacities, counters and taints that Prism publishes")
	t.row("[events.md](events.md)", "reasons of Events, their meaning and the fix")
	t.row("[metrics.md](metrics.md)", "metrics of the plugin and the controller; GPU fields by architecture and their DCGM names")
	t.row("[../metrics.md](../metrics.md)", "metrics of GPUs, MIG devices and containers")
	t.row("[../monitoring.md](../monitoring.md)", "Prometheus, dashboards, alerts, autoscaling, access")
	t.row("[../from-dcgm-exporter.md](../from-dcgm-exporter.md)", "from dcgm-exporter to `prism-exporter`")
	t.row("[../metrics-of-claims.md](../metrics-of-claims.md)", "`GPUMetricsConfig` in a claim or class, and `gpu.prom` in its containers")
	t.row("[chart-values.md](chart-values.md)", "values of the Helm chart")
	t.row("[flags.md](flags.md)", "flags, environment variables and configuration file of both programs")
	t.row("[kubectl-prism.md](kubectl-prism.md)", "commands of `kubectl prism`: GPUs, their use and maintenance, why pods wait, validation of nodes, reports of profiled processes, and recording by hand")
	t.row("[kubernetes-versions.md](kubernetes-versions.md)", "features by Kubernetes version and feature gate")
	t.row("[migration.md](migration.md)", "values and flags of NVIDIA's device plugin, values of its DRA driver, and their replacements")
	out.table(t)
	return out.String(), nil
}
