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

// followRecords reads each record as soon as it changes, and periodically all of them, until the context ends.
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
			t.readRecords(changed)
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
	if err := watcher.Add(t.paths.records); err != nil {
		return err
	}
	watched, err := os.Stat(t.paths.records)
	if err != nil {
		return err
	}
	t.readRecords(changed)
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
			t.readRecords(changed)
		case event := <-watcher.Events:
			if event.Name == t.paths.records && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return nil
			}
			if uid, isRecord := checkpoint.RecordOf(filepath.Base(event.Name)); isRecord {
				t.readRecord(uid, changed)
			}
		case <-all.C:
			if now, err := os.Stat(t.paths.records); err != nil || !os.SameFile(watched, now) {
				return err
			}
			t.readRecords(changed)
		}
	}
}
