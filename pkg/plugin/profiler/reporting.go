package profiler

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/node"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
)

// profileSweep is the interval at which reports are deleted after their retention.
const profileSweep = time.Minute

// sweepJitter is the maximum delay of the next sweep, as a part of the interval.
const sweepJitter = 0.2

// storeRetry is the pause after reports could not be stored: the node lacks a free inotify instance, or its disk fails.
const storeRetry = 30 * time.Second

// serveRetry is the pause after serving reports failed, for example because their port is in use.
const serveRetry = 10 * time.Second

// Lead stores reports, and deletes them after their retention, until the context ends. Only one process of the node runs it.
func (p *Extension) Lead(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.lead(ctx); err != nil {
			p.logger.Error(err, "Storing reports failed and will be retried", "retryAfter", storeRetry)
		}
	}, storeRetry)
}

// lead runs Lead until an error. It returns when all of its goroutines have ended.
func (p *Extension) lead(ctx context.Context) error {
	if err := p.store.Lead(); err != nil {
		return err
	}
	if prepared, err := p.cluster.records(); err == nil {
		p.followed.recall(prepared)
	}
	var beside wait.Group
	besides, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	beside.StartWithContext(besides, func(ctx context.Context) {
		wait.JitterUntilWithContext(ctx, func(context.Context) { p.sweep() }, profileSweep, sweepJitter, true)
	})
	if p.cluster.reports != nil {
		beside.StartWithContext(besides, func(ctx context.Context) { p.store.FollowCluster(ctx, p.cluster.reports) })
	}
	return p.store.Run(ctx)
}

func (p *Extension) sweep() {
	err := p.store.Sweep(func() (map[string]bool, error) {
		prepared, err := p.cluster.records()
		uids := map[string]bool{}
		for _, record := range prepared {
			uids[record.Claim.UID] = true
		}
		return uids, err
	})
	if err != nil {
		p.logger.Error(err, "Deleting old reports failed and will be retried")
	}
	if p.sessions != nil {
		p.sessions.Sweep()
	}
}

// serve serves reports to controllers until the context ends; it does nothing without an endpoint.
func (p *Extension) serve(ctx context.Context) error {
	if p.cfg.Profiler.Endpoint == "" {
		return nil
	}
	server := node.New(node.Options{
		Address: p.cfg.Profiler.Endpoint, Certificate: p.cfg.Profiler.Certificate, Client: p.cfg.Profiler.Client, Store: p.store,
		Sessions: p.sessions,
		Busy:     func(err error) bool { return errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrFollowing) },
	})
	p.serveAgain(ctx, server.Run)
	return nil
}

// serveAgain calls run until the context ends: claims are prepared even if reports cannot be read.
func (p *Extension) serveAgain(ctx context.Context, run func(context.Context) error) {
	logged := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != logged {
			p.logger.Error(err, "Serving the reports of the node failed and will be retried", "retryAfter", serveRetry)
			logged = text
		}
	}, serveRetry)
}
