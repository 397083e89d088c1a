package view

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// interval is the shortest time between two pictures, and between two attempts to watch objects.
const interval = time.Second

// Watch draws a picture, and again after each change, at most once a second, until ctx is done or draw returns an error, which it returns.
func Watch(ctx context.Context, client *cluster.Client, o Options, draw func(*clusterview.Cluster, []Missing) error) error {
	return watchWith(ctx, clock.RealClock{}, newReader(client, o), draw)
}

func watchWith(ctx context.Context, clk clock.Clock, r *reader, draw func(*clusterview.Cluster, []Missing) error) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	if err := draw(r.picture()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watcher{reader: r, clock: clk, changed: make(chan struct{}, 1)}
	for _, k := range r.kinds {
		if k.version != "" {
			go func() {
				if err := w.follow(ctx, k); err != nil {
					cancel(err)
				}
			}()
		}
	}
	last := clk.Now()
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.changed:
			if due == nil {
				due = clk.After(max(time.Nanosecond, last.Add(interval).Sub(clk.Now())))
			}
		case <-due:
			due = nil
			if err := r.readTemplates(ctx); err != nil {
				return err
			}
			if err := draw(r.picture()); err != nil {
				return err
			}
			last = clk.Now()
		}
	}
}

// watcher follows the changes of objects.
type watcher struct {
	*reader

	clock   clock.Clock
	changed chan struct{}
}

// follow follows the changes of a kind until ctx is done. It goes on from the list, and lists again if the API server no longer knows the
// changes since. Other failures are temporary.
func (w *watcher) follow(ctx context.Context, k *kind) error {
	for ctx.Err() == nil {
		err := w.stream(ctx, k)
		switch {
		case ctx.Err() != nil:
		case apierrors.IsForbidden(err):
			w.lacks(k.right("watch", k.from.namespace))
			w.notify()
			return nil
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			if err := w.list(ctx, k); err != nil {
				return err
			}
			w.notify()
		}
		select {
		case <-ctx.Done():
		case <-w.clock.After(interval):
		}
	}
	return nil
}

// stream follows changes until the API server ends the stream. It returns why.
func (w *watcher) stream(ctx context.Context, k *kind) error {
	options := k.from.options
	options.Watch, options.AllowWatchBookmarks, options.ResourceVersion = true, true, k.version
	stream, err := k.from.request(&options).Watch(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		if err := w.apply(k, event.Type, event.Object); err != nil {
			return err
		}
	}
	return nil
}

// apply changes an object.
func (w *watcher) apply(k *kind, change watch.EventType, changed runtime.Object) error {
	of, err := meta.Accessor(changed)
	if err != nil {
		return fmt.Errorf("watching %s: %w", k.name(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := nameOf(of)
	switch change {
	case watch.Added, watch.Modified:
		if err := k.set(changed); err != nil {
			return err
		}
		k.known[name] = true
		w.notify()
	case watch.Deleted:
		k.remove(name)
		delete(k.known, name)
		w.notify()
	case watch.Bookmark, watch.Error:
	}
	k.version = of.GetResourceVersion()
	return nil
}

// notify requests a picture.
func (w *watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
