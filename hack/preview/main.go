// Preview draws the answers that a Prometheus has for the panels of the chart's dashboards, as one HTML page. It evaluates nothing itself,
// and it is no Grafana. Without --prometheus it starts one that scrapes example pages, so that it needs neither a cluster nor a GPU.
//
//	go run ./hack/preview --prometheus http://127.0.0.1:9090
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "preview:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("preview", flag.ExitOnError)
	server := flags.String("prometheus", "", "URL of a Prometheus; empty: start one of the cache, with example pages")
	output := flags.String("output", "dist/preview.html", "the page")
	past := flags.Duration("past", time.Hour, "time that the graphs show, 20s with example pages")
	node := flags.String("node", ".*", "variable node of the dashboards, a regular expression")
	namespace := flags.String("namespace", ".*", "variable namespace")
	gpu := flags.String("gpu", ".*", "variable gpu, UUIDs of GPUs")
	_ = flags.Parse(args)
	boards, err := dashboards(".", map[string]string{"node": *node, "namespace": *namespace, "gpu": *gpu})
	if err != nil {
		return err
	}
	p := prometheus(strings.TrimSuffix(*server, "/"))
	if p == "" {
		dir, err := os.MkdirTemp("", "prism-preview-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		var stop func()
		if p, stop, err = start(ctx, ".", dir); err != nil {
			return err
		}
		defer stop()
		*past = 20 * time.Second
		fmt.Printf("Prometheus scrapes example pages for %s\n", *past)
		time.Sleep(*past + 2*time.Second)
	}
	drawn, err := draw(ctx, p, boards, *past)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*output), 0o755); err != nil {
		return err
	}
	file, err := os.Create(*output)
	if err != nil {
		return err
	}
	from := *server
	if from == "" {
		from = "a Prometheus with example pages"
	}
	at := time.Now().UTC().Format(time.RFC1123)
	if err := page.Execute(file, map[string]any{"Dashboards": drawn, "From": from, "Past": *past, "At": at}); err != nil {
		return err
	}
	fmt.Println("The page is", *output)
	return file.Close()
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("").Parse(pageText))

// drawing is a dashboard with the answers of its panels.
type drawing struct {
	Title  string
	Panels []drawnPanel
}

type drawnPanel struct {
	panel
	Answers []answer
}

type answer struct {
	Query string
	Lines []line
	More  int
}

// line is a series: its name, its last value, and the points of its graph in a box of 300 by 60.
type line struct{ Name, Last, Points string }

// lines is how many series of a query are shown.
const lines = 12

func draw(ctx context.Context, p prometheus, all []dashboard, past time.Duration) ([]drawing, error) {
	var drawn []drawing
	for _, d := range all {
		shown := drawing{Title: d.Title}
		for _, each := range d.Panels {
			span := past
			if each.Type != "timeseries" {
				span = 0
			}
			of := drawnPanel{panel: each}
			for _, target := range each.Targets {
				found, err := p.ask(ctx, target.Expr, span)
				if err != nil {
					return nil, fmt.Errorf("panel %q: %w", each.Title, err)
				}
				a := answer{Query: target.Expr, More: max(0, len(found)-lines)}
				highest := 0.0
				for _, s := range found {
					highest = max(highest, slices.Max(s.Values))
				}
				for _, s := range found[:min(len(found), lines)] {
					a.Lines = append(a.Lines, line{s.name(), fmt.Sprintf("%.4g", s.Values[len(s.Values)-1]), s.points(highest)})
				}
				of.Answers = append(of.Answers, a)
			}
			shown.Panels = append(shown.Panels, of)
		}
		drawn = append(drawn, shown)
	}
	return drawn, nil
}

// name is that of the series as Prometheus writes it.
func (s *series) name() string {
	var pairs []string
	for name, value := range s.Labels {
		if name != "__name__" && value != "" {
			pairs = append(pairs, fmt.Sprintf("%s=%q", name, value))
		}
	}
	slices.Sort(pairs)
	return s.Labels["__name__"] + "{" + strings.Join(pairs, ", ") + "}"
}

func (s *series) points(highest float64) string {
	var b strings.Builder
	for i, v := range s.Values {
		if len(s.Values) == 1 {
			return ""
		}
		y := 58.0
		if highest > 0 {
			y -= 56 * max(0, v) / highest
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", 300*float64(i)/float64(len(s.Values)-1), y)
	}
	return b.String()
}
