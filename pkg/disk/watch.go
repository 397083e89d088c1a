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

// rewatch is the time until the next attempt if a file cannot be watched.
const rewatch = 10 * time.Second

// Watch calls changed when it begins to watch a file, and then whenever the content at its path may have changed, until the context ends:
// the file was written; or the file, a link on the path or the directory of either was created, removed or replaced. This covers files of a
// mounted ConfigMap, which are links below a link that the kubelet replaces. The file need not exist yet.
//
// If the system cannot watch the file, Watch calls changed every ten seconds, and failed once with the reason. Neither may block.
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

// watch watches the present components of the path and returns at the first change of them: removing a directory removes its watch, even if
// another directory replaces it at once.
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
			return nil // it was removed meanwhile
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
				return nil // a lost event may concern this path
			}
			return err
		case event := <-watcher.Events:
			// The removal of a step's directory is reported under the directory's own name.
			if slices.ContainsFunc(steps, func(step string) bool { return step == event.Name || filepath.Dir(step) == event.Name }) {
				return nil
			}
		}
	}
}

// mostLinks limits the links on a path, as in the kernel.
const mostLinks = 40

// way lists the paths that must be watched to see whether a path leads elsewhere: each link on it, and finally the file or the first
// missing component. The directories of all of these exist, and the listed paths contain no links.
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

// parts returns the components of a path.
func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" })
}
