package plugin

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/profiler/node"
	"github.com/prism-gpu/prism/pkg/profiler/store"
)

// reporting is what a plugin does with reports in the background.
type reporting struct {
	*profiles
	// cluster is nil on a machine without an API.
	cluster store.Cluster
}

// profileSweep is how often reports are deleted whose retention has passed.
const profileSweep = time.Minute

// storeRetry is when reports are stored that could not be: the node has no inotify instance left, or its disk fails.
const storeRetry = 30 * time.Second

// serveRetry is when serving reports is tried again that failed: their port is in use.
const serveRetry = 10 * time.Second

// keepReports runs reporting, of a node whose processes are not profiled any more with the reports that it has from before.
func keepReports(ctx context.Context, m *Machine, cluster store.Cluster) {
	r := reporting{m.State.profiles, cluster}
	if r.profiles == nil {
		var err error
		if r.profiles, err = openLeft(ctx, m.cfg, m.adapters); err != nil {
			klog.FromContext(ctx).Error(err, "Reports of before the profiler was turned off stay on the node until the plugin is started again")
		}
	}
	r.run(ctx, m.Kept)
}

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
	if r.store.Imports { // else no claim is profiled any more
		beside.StartWithContext(besides, r.store.KeepSpares)
	}
	if r.cluster != nil {
		beside.StartWithContext(besides, func(ctx context.Context) { r.store.FollowCluster(ctx, r.cluster) })
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
