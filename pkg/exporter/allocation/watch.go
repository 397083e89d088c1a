package allocation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// readPlugin reads all files of the plugin again.
func (t *Tracker) readPlugin(changed chan<- struct{}) {
	t.released.read()
	t.readRecords(changed)
}

// followRecords reads each file of the plugin as soon as it changes, and periodically all of them, until the context ends.
func (t *Tracker) followRecords(ctx context.Context, changed chan<- struct{}) {
	said := ""
	for ctx.Err() == nil {
		err := t.watchRecords(ctx, changed)
		if err != nil && err.Error() != said {
			klog.FromContext(ctx).Info("Failed to watch plugin records, will retry", "err", err, "directory", t.paths.records)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(t.schedule.rewatch):
			t.readPlugin(changed)
		}
	}
}

// watchRecords returns if the directory cannot be watched, or was replaced by another one.
func (t *Tracker) watchRecords(ctx context.Context, changed chan<- struct{}) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }()
	for _, dir := range []string{t.paths.records, filepath.Dir(t.released.file)} {
		if err := watcher.Add(dir); err != nil {
			return err
		}
	}
	watched, err := os.Stat(t.paths.records)
	if err != nil {
		return err
	}
	t.readPlugin(changed)
	all := time.NewTicker(t.schedule.records)
	defer all.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			t.readPlugin(changed)
		case event := <-watcher.Events:
			if event.Name == t.paths.records && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return nil
			}
			t.fileChanged(event.Name, changed)
		case <-all.C:
			if now, err := os.Stat(t.paths.records); err != nil || !os.SameFile(watched, now) {
				return err
			}
			t.readPlugin(changed)
		}
	}
}

// fileChanged reads a file of the plugin again.
func (t *Tracker) fileChanged(path string, changed chan<- struct{}) {
	if path == t.released.file {
		t.released.read()
		return
	}
	if uid, isRecord := checkpoint.RecordOf(filepath.Base(path)); isRecord && filepath.Dir(path) == t.paths.records {
		t.readRecord(uid, changed)
	}
}
