package plugin

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/profiler/conditions"
	"github.com/prism-gpu/prism/pkg/profiler/plan"
)

const (
	// statusPause is the shortest time between two statuses of a claim about its profile.
	statusPause = 5 * time.Second
	// maxFollowed is how many claims are followed after they were unprepared: their last reports are being imported.
	maxFollowed = 256
)

// followed reports claims that are prepared, and remembers those whose profile is reported later.
type followed struct {
	driver.Reports

	mu      sync.Mutex
	records map[string]*checkpoint.Record
	order   []string // of records, the oldest first
	changed map[string]bool
	wake    chan struct{}
}

// follow is what reports claims, and what reports changes until the context ends.
func (p *profiles) follow(reports driver.Reports) (driver.Reports, func(context.Context) error) {
	if p == nil {
		return reports, func(context.Context) error { return nil }
	}
	f := &followed{Reports: reports, records: map[string]*checkpoint.Record{}, changed: map[string]bool{}, wake: make(chan struct{}, 1)}
	p.followed = f
	return f, f.run
}

// Prepared reports a claim.
func (f *followed) Prepared(r *checkpoint.Record) {
	if plan.Profiled(r) {
		f.remember(r)
	}
	f.Reports.Prepared(r)
}

func (f *followed) remember(r *checkpoint.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.order = append(slices.DeleteFunc(f.order, func(uid string) bool { return uid == r.Claim.UID }), r.Claim.UID)
	f.records[r.Claim.UID] = r
	if len(f.order) > maxFollowed {
		delete(f.records, f.order[0])
		f.order = f.order[1:]
	}
}

// change says that the reports of a claim have changed. It does not block.
func (f *followed) change(claimUID string) {
	if f == nil {
		return // a machine without an API
	}
	f.mu.Lock()
	f.changed[claimUID] = true
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns the claims that have changed.
func (f *followed) take() (all []*checkpoint.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range f.changed {
		if r := f.records[uid]; r != nil {
			all = append(all, r)
		}
	}
	clear(f.changed)
	return all
}

// run reports changes of profiles until the context ends, of each claim at most once in statusPause. A process that begins to lead reports
// those of all prepared claims: what it read is what the claims' statuses should have.
func (f *followed) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
		for _, r := range f.take() {
			f.Reports.Prepared(r)
		}
		pause := time.NewTimer(statusPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// recall has the statuses of all profiled claims compared with what the store has.
func (f *followed) recall(records []*checkpoint.Record) {
	for _, r := range records {
		if plan.Profiled(r) && r.State == checkpoint.Done {
			f.remember(r)
			f.change(r.Claim.UID)
		}
	}
}

// conditions are those of a record's profiled devices.
func (p *profiles) conditions(r *checkpoint.Record) (all []kube.Condition) {
	if p == nil || !plan.Profiled(r) {
		return nil
	}
	config, err := plan.Config(r)
	if err != nil {
		p.logger.Error(err, "The conditions of a claim do not say how it is profiled", "claim", klog.KRef(r.Claim.Namespace, r.Claim.Name))
		return nil
	}
	reports, stopped := p.store.Of(r.Claim.UID)
	for _, c := range conditions.Of(conditions.State{Claim: r.Claim.Name, Config: config, Reports: reports, Stopped: stopped}) {
		all = append(all, kube.Condition{Type: c.Type, True: c.True, Reason: c.Reason, Message: c.Message})
	}
	return all
}
