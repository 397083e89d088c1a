// Screenshot writes a picture of the page of kubectl prism ui, with simulated GPUs: screenshot FILE.png. docs/images has one.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/ui"
	"github.com/prism-gpu/prism/test/browser"
	"github.com/prism-gpu/prism/test/fakes/gpucluster"
)

// options are the flags.
type options struct {
	nodes          int
	width, height  int64
	scheme, script string
}

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 24, "Nodes.")
	flag.Int64Var(&o.width, "width", 1280, "Width in pixels.")
	flag.Int64Var(&o.height, "height", 660, "Height in pixels.")
	flag.StringVar(&o.scheme, "scheme", "light", "Color scheme: light or dark.")
	flag.StringVar(&o.script, "script", "", "JavaScript that is evaluated before, such as a click.")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: screenshot [flags] FILE.png")
		os.Exit(2)
	}
	if err := write(context.Background(), o, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "screenshot:", err)
		os.Exit(1)
	}
}

// write draws the page and writes the picture.
func write(ctx context.Context, o options, file string) error {
	folder, err := os.MkdirTemp("", "screenshot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	name := filepath.Join(folder, "page.html")
	if err := page(ctx, o.nodes, name); err != nil {
		return err
	}
	b, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	tab, closeTab, err := b.Tab(o.width, o.height)
	if err != nil {
		return err
	}
	defer closeTab()
	steps := []func() error{
		func() error { return tab.Emulate("", map[string]string{"prefers-color-scheme": o.scheme}) },
		func() error { return tab.Open("file://" + name) },
		func() error { return tab.Wait("document.querySelector('.node')") },
	}
	if o.script != "" {
		steps = append(steps, func() error { return tab.Run(o.script) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if problems := tab.Problems(); len(problems) > 0 {
		return fmt.Errorf("the page logged %q", problems)
	}
	picture, err := tab.Screenshot()
	if err != nil {
		return err
	}
	if picture, err = smaller(picture); err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}

// page writes the page of a cluster with explained pods.
func page(ctx context.Context, nodes int, file string) error {
	store := clusterview.NewStore()
	if err := gpucluster.Fill(ctx, store, nodes, 9); err != nil {
		return err
	}
	c := store.Cluster()
	features := structured.Features{ConsumableCapacity: true, PartitionableDevices: true, DeviceTaints: true, PrioritizedList: true, AdminAccess: true}
	explanations := map[types.NamespacedName]*explain.Explanation{}
	for _, pod := range ui.Waiting(c) {
		e, err := explain.Pod(ctx, explain.NewSolver(c, features), pod, explain.Options{Driver: gpucluster.Driver, Now: gpucluster.Now.Unix()})
		if err != nil {
			return err
		}
		explanations[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = e
	}
	var page bytes.Buffer
	about := ui.About{Driver: gpucluster.Driver, Source: "production", Time: gpucluster.Now}
	if err := ui.Page(&page, c, about, ui.Extra{Explanations: explanations, Loads: gpucluster.Loads(c)}); err != nil {
		return err
	}
	return os.WriteFile(file, page.Bytes(), 0o600)
}

// smaller reduces a picture to its 256 most frequent colours, which makes the file a third as large.
func smaller(data []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	number := map[color.Color]int{}
	bounds := full.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			number[full.At(x, y)]++
		}
	}
	var palette color.Palette
	for c := range number {
		palette = append(palette, c)
	}
	slices.SortFunc(palette, func(a, b color.Color) int { return number[b] - number[a] })
	palette = palette[:min(len(palette), 256)]
	nearest := map[color.Color]uint8{}
	out := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := full.At(x, y)
			index, known := nearest[c]
			if !known {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			out.SetColorIndex(x, y, index)
		}
	}
	var buffer bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buffer, out)
	return buffer.Bytes(), err
}
