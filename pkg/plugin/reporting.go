package plugin

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/profiler/node"
	"github.com/prism-gpu/prism/pkg/profiler/store"
)

// reporting is what a plugin does with reports in the background.
type reporting struct {
	*profiles
	// namespaces says which namespace has a name now; nil on a machine without an API.
	namespaces func(ctx context.Context, name string) (store.Namespace, error)
}

// namespacesOf reads namespaces, and logs why they cannot be read, once for each cause.
func namespacesOf(client kubernetes.Interface, logger klog.Logger) func(ctx context.Context, name string) (store.Namespace, error) {
	logged := ""
	return func(ctx context.Context, name string) (store.Namespace, error) {
		ctx, stop := context.WithTimeout(ctx, namespaceTimeout)
		defer stop()
		uid, created, err := kube.Namespaces{Client: client}.Get(ctx, name)
		if err != nil && err.Error() != logged && !errors.Is(err, context.Canceled) {
			logged = err.Error()
			logger.Error(err, "Reports of namespaces that were deleted stay for now", "retryAfter", time.Minute)
		}
		return store.Namespace{UID: string(uid), Created: created}, err
	}
}

// namespaceTimeout bounds a question about a namespace.
const namespaceTimeout = 10 * time.Second

// profileSweep is how often reports are deleted whose retention has passed.
const profileSweep = time.Minute

// storeRetry is when reports are stored that could not be: the node has no inotify instance left, or its disk fails.
const storeRetry = 30 * time.Second

// serveRetry is when serving reports is tried again that failed: their port is in use.
const serveRetry = 10 * time.Second

// run stores reports, and deletes them after their retention, until the context ends. Only one process of the node does.
func (r reporting) run(ctx context.Context, records func() ([]*checkpoint.Record, error)) {
	if r.profiles == nil {
		return
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.lead(ctx, records); err != nil {
			r.logger.Error(err, "Reports of processes are stored late", "retryAfter", storeRetry)
		}
	}, storeRetry)
}

// lead is run until something fails. It returns when nothing of it runs any more.
func (r reporting) lead(ctx context.Context, records func() ([]*checkpoint.Record, error)) error {
	if err := r.store.Lead(); err != nil {
		return err
	}
	if prepared, err := records(); err == nil && r.followed != nil {
		r.followed.recall(prepared)
	}
	var beside wait.Group
	besides, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	beside.StartWithContext(besides, func(ctx context.Context) {
		wait.JitterUntilWithContext(ctx, func(context.Context) { r.sweep(records) }, profileSweep, sweepJitter, true)
	})
	beside.StartWithContext(besides, r.store.KeepSpares)
	if r.namespaces != nil {
		beside.StartWithContext(besides, func(ctx context.Context) { r.store.FollowNamespaces(ctx, r.namespaces) })
	}
	return r.store.Run(ctx)
}

func (r reporting) sweep(records func() ([]*checkpoint.Record, error)) {
	err := r.store.Sweep(func() (map[string]bool, error) {
		prepared, err := records()
		uids := map[string]bool{}
		for _, record := range prepared {
			uids[record.Claim.UID] = true
		}
		return uids, err
	})
	if err != nil {
		r.logger.Error(err, "Old reports stay for now")
	}
}

// serve serves reports to controllers until the context ends; nothing where no endpoint is set.
func (r reporting) serve(ctx context.Context) error {
	if r.profiles == nil || r.cfg.Profiler.Endpoint == "" {
		return nil
	}
	server := node.New(node.Options{
		Address: r.cfg.Profiler.Endpoint, Certificate: r.cfg.Profiler.Certificate, Client: r.cfg.Profiler.Client, Store: r.store,
		Busy: func(err error) bool { return errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrFollowing) },
	})
	r.serveAgain(ctx, server.Run)
	return nil
}

// serveAgain calls run until the context ends: claims are prepared whether or not reports can be read.
func (r reporting) serveAgain(ctx context.Context, run func(context.Context) error) {
	logged := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != logged {
			r.logger.Error(err, "Reports of the node cannot be read", "retryAfter", serveRetry)
			logged = text
		}
	}, serveRetry)
}
