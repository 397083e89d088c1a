package counting

import (
	"fmt"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watcher reports changes in folders.
type watcher interface {
	// Add watches a folder; no error if it is watched already.
	Add(dir string) error
	Remove(dir string) error
	Close() error
}

// newInotify returns a watcher that calls changed after changes, or after some were lost.
func newInotify(changed func()) (watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching the files of prism-collector: %w", err)
	}
	go func() { // until Close
		for {
			select {
			case _, open := <-w.Events:
				if !open {
					return
				}
			case _, open := <-w.Errors:
				if !open {
					return
				}
			}
			changed()
		}
	}()
	return w, nil
}

// watches are the watched folders.
type watches struct {
	open func() (watcher, error)
	// failed is called when no watcher can be opened, once.
	failed  func(error)
	watcher watcher
	folders []string
}

// set watches these folders instead of earlier ones, and the folder that contains them. It returns false if one of these cannot be watched. A
// folder that was replaced is watched again.
func (w *watches) set(top string, folders []string) bool {
	if w.watcher == nil {
		opened, err := w.open()
		if err != nil {
			if w.failed != nil {
				w.failed(err)
				w.failed = nil
			}
			return false
		}
		w.watcher = opened
	}
	for _, folder := range w.folders {
		if !slices.Contains(folders, folder) {
			_ = w.watcher.Remove(folder) // it may have been removed, and its watch with it
		}
	}
	w.folders = folders
	complete := w.watcher.Add(top) == nil
	for _, folder := range folders {
		complete = w.watcher.Add(folder) == nil && complete
	}
	return complete
}

func (w *watches) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
