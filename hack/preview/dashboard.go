package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// dashboard is what the preview shows of a Grafana dashboard.
type dashboard struct {
	Title  string
	Panels []panel
}

type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

// dashboards are those of the chart, with the variables of their queries replaced: name to regular expression.
func dashboards(root string, variables map[string]string) ([]dashboard, error) {
	var pairs []string
	for name, value := range variables {
		pairs = append(pairs, "$"+name, value)
	}
	replacer := strings.NewReplacer(pairs...)
	var all []dashboard
	for _, name := range []string{"cluster", "gpu"} {
		text, err := os.ReadFile(filepath.Join(root, "deployments/helm/prism/files/dashboard-"+name+".json"))
		if err != nil {
			return nil, err
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("reading the dashboard %s: %w", name, err)
		}
		for i := range d.Panels {
			for j := range d.Panels[i].Targets {
				d.Panels[i].Targets[j].Expr = replacer.Replace(d.Panels[i].Targets[j].Expr)
			}
		}
		all = append(all, d)
	}
	return all, nil
}
