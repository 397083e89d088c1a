package exporter

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// counterKeys are the known keys of a ConfigMap with counters, by precedence: the key of the GPU operator, of dcgm-exporter's chart and of
// its image.
var counterKeys = []string{"metrics", "dcgm-metrics.csv", "default-counters.csv"}

// counters selects the fields of dcgm-exporter that /metrics/dcgm shows. If a file cannot be read, the last valid selection stays. It is
// safe for concurrent use.
type counters struct {
	// path is a file or a directory; empty for the default selection.
	path string
	// measure adds the fields of a selection to the sampled ones.
	measure func(...metrics.Field)

	mu        sync.Mutex
	selection *metrics.Selection
	left      []metrics.Problem
	// stale is the reason why the last selection stays; empty if the file is valid.
	stale string
	// content is the content of the last file that was read.
	content []byte
}

// current returns the selection, nil for the default one, and the problems of the file.
func (c *counters) current() (*metrics.Selection, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var notes []string
	if c.stale != "" {
		notes = append(notes, "counters of /metrics/dcgm: "+c.stale+"; using the last valid ones")
	}
	for _, problem := range c.left {
		notes = append(notes, fmt.Sprintf("counters of /metrics/dcgm: %s", problem))
	}
	return c.selection, notes
}

// problems are the ignored lines.
func (c *counters) problems() []metrics.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// watch reads the file whenever it changes, until the context ends.
func (c *counters) watch(ctx context.Context) error {
	if c.path == "" {
		<-ctx.Done()
		return nil
	}
	paths := []string{c.path}
	if info, err := os.Stat(c.path); err == nil && info.IsDir() {
		paths = []string{filepath.Join(c.path, "..data")} // of a mounted ConfigMap: it is replaced with every change, whatever the keys are
		for _, key := range counterKeys {
			paths = append(paths, filepath.Join(c.path, key))
		}
	}
	var watching sync.WaitGroup
	for _, path := range paths {
		watching.Go(func() {
			disk.Watch(ctx, path, func() { c.read(ctx) }, func(err error) {
				klog.FromContext(ctx).Error(err, "Failed to watch the counters, reading them every ten seconds")
			})
		})
	}
	watching.Wait()
	return nil
}

// read reads the file once.
func (c *counters) read(ctx context.Context) {
	path, text, err := c.text()
	var selection *metrics.Selection
	var left []metrics.Problem
	if err == nil {
		selection, left, err = metrics.ParseCSV(text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if stale := fmt.Sprintf("%s: %v", path, err); stale != c.stale {
			c.stale = stale
			klog.FromContext(ctx).Error(err, "Counters of /metrics/dcgm are invalid, using the last valid ones", "file", path)
		}
		return
	}
	if c.stale == "" && bytes.Equal(c.content, text) {
		return
	}
	c.selection, c.left, c.stale, c.content = selection, left, "", text
	c.measure(selection.Fields()...)
	for _, problem := range left {
		klog.FromContext(ctx).Info("Ignored a counter of /metrics/dcgm", "file", path, "reason", problem.String())
	}
	klog.FromContext(ctx).V(2).Info("Read the counters of /metrics/dcgm", "file", path)
}

// text returns the path and the content of the file with the counters.
func (c *counters) text() (path string, text []byte, err error) {
	info, err := os.Stat(c.path)
	if err != nil {
		return c.path, nil, err
	}
	if !info.IsDir() {
		text, err = os.ReadFile(c.path)
		return c.path, text, err
	}
	key, err := counterKey(c.path)
	if err != nil {
		return c.path, nil, err
	}
	path = filepath.Join(c.path, key)
	text, err = os.ReadFile(path)
	return path, text, err
}

// counterKey is the key with the counters in a mounted ConfigMap: the only key, under any name, otherwise the first known name.
func counterKey(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var keys []string
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "..") && !entry.IsDir() {
			keys = append(keys, name)
		}
	}
	if len(keys) == 1 {
		return keys[0], nil
	}
	for _, key := range counterKeys {
		if slices.Contains(keys, key) {
			return key, nil
		}
	}
	if len(keys) == 0 {
		return "", fmt.Errorf("directory %s contains no key: add one with the counters, under any name", dir)
	}
	const most = 10
	return "", fmt.Errorf("directory %s contains %d keys (%s): rename the key with the counters to one of %s, or remove the other keys", dir, len(keys),
		strings.Join(keys[:min(len(keys), most)], ", "), strings.Join(counterKeys, ", "))
}
