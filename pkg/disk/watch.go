package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rewatch is the time until a file that cannot be watched is tried again.
const rewatch = 10 * time.Second

// Watch calls changed when it begins to watch a file, and whenever something else may be read from its path after that, until the
// context ends: it was written, it or a link on the way to it came, went or was replaced, or the folder did that either of them is
// in. A file of a ConfigMap that is mounted is such: a link to a file below another link, which is replaced. There need be no file yet.
//
// While the system does not let it be watched, changed is called every ten seconds, and failed, once, with the reason. Neither may
// block.
func Watch(ctx context.Context, path string, changed func(), failed func(error)) {
	persist(ctx, func() error { return watch(ctx, path, changed) }, changed, func(err error) {
		failed(fmt.Errorf("watching file %s: %w", path, err))
	})
}

// persist watches again and again.
func persist(ctx context.Context, watch func() error, changed func(), failed func(error)) {
	said := ""
	for ctx.Err() == nil {
		err := watch()
		if err == nil {
			said = ""
			continue
		}
		if err.Error() != said {
			said = err.Error()
			failed(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rewatch):
			changed()
		}
	}
}

// watch watches what is on the way to the file now, and returns at the first change of that: a folder that goes takes its watch along,
// also when another one is in its place at once.
func watch(ctx context.Context, path string, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }()
	steps, err := way(path)
	if err != nil {
		return err
	}
	for _, step := range steps {
		err := watcher.Add(filepath.Dir(step))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil {
			return err
		}
	}
	changed()
	if now, err := way(path); err != nil || !slices.Equal(now, steps) {
		return err
	}
	return next(ctx, watcher, steps)
}

// next waits until one of the steps has changed.
func next(ctx context.Context, watcher *fsnotify.Watcher, steps []string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return nil // what was missed may have been about this
			}
			return err
		case event := <-watcher.Events:
			// The folder of a step goes under its own name.
			if slices.ContainsFunc(steps, func(step string) bool { return step == event.Name || filepath.Dir(step) == event.Name }) {
				return nil
			}
		}
	}
}

// mostLinks is how many links a path may lead over, as for the system.
const mostLinks = 40

// way lists what must be inspected to see whether a path leads elsewhere: its links, each where it is, and at last the file, or what is
// missing first. The folders of all of these are there, and their paths have no links.
func way(path string) ([]string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	var steps []string
	at, rest := "/", parts(path)
	for len(rest) > 0 {
		here := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(here)
		switch {
		case err == nil && info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(here)
			if steps = append(steps, here); err != nil || len(steps) > mostLinks {
				return steps, err
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(parts(target), rest...)
		case err != nil, len(rest) == 0:
			return append(steps, here), nil
		default:
			at = here
		}
	}
	return steps, nil
}

// parts are the names that a path is made of.
func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" })
}
