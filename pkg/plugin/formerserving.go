package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/reconcile"
)

// formerServing serves the kubelet under earlier driver names until nothing of them is left.
type formerServing struct {
	names  *formerNames
	api    API
	ports  driverPorts
	bootID string
	// extensions may have announced something under earlier names.
	extensions []extension.Extension
}

// run serves until the context ends.
func (s *formerServing) run(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	s.names.mu.Lock()
	waiting := make([]string, 0, len(s.names.waiting))
	for name := range s.names.waiting {
		waiting = append(waiting, name)
	}
	s.names.mu.Unlock()
	for _, name := range s.names.names() {
		serving.Go(func() { s.serve(ctx, name) })
	}
	for _, name := range waiting {
		serving.Go(func() {
			if s.await(ctx, name) {
				s.serve(ctx, name)
			}
		})
	}
	<-ctx.Done()
	return nil
}

// await waits until the process of a name ends, takes over the name, and reports whether its directory still exists. Claims get GPUs once
// the records of the name, and so their devices, are known.
func (s *formerServing) await(ctx context.Context, name string) bool {
	lead := func(locks Locks) (func(), error) { return locks.Lead(ctx) }
	for ctx.Err() == nil {
		err := s.names.take(name, lead)
		taken := err == nil
		if taken {
			err = errors.Join(s.ports.tx.Recover(ctx), s.names.taken(name))
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Taking over from an earlier driver name", "driver", name)
		}
		if taken {
			return slices.Contains(s.names.names(), name) // another process may have removed it
		}
		pause(ctx, reconcile.Period, nil)
	}
	return false
}

// pause waits for a signal, and not longer than a time and a part of it by chance: many nodes begin at the same time. It reports whether there was a
// signal.
func pause(ctx context.Context, most time.Duration, signal <-chan struct{}) bool {
	select {
	case <-ctx.Done():
	case <-signal:
		return true
	case <-time.After(wait.Jitter(most, sweepJitter)):
	}
	return false
}

// drainPeriod is the longest time between two checks whether something is left of a name. One that finds no record lists all claims of the cluster:
// the time doubles from one such check to the next.
const drainPeriod = 10 * time.Minute

// drain returns when no claim has devices of a name, or the context ends. A signal is a claim that was unprepared.
func (s *formerServing) drain(ctx context.Context, name string, signal <-chan struct{}) {
	reported, period := -1, reconcile.Period
	for {
		left, listed, err := s.left(ctx, name, &reported)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "What is left of an earlier driver name is not known", "driver", name)
		} else if left == 0 {
			return
		}
		if !listed {
			period = reconcile.Period
		}
		if pause(ctx, period, signal) {
			period = reconcile.Period
		} else {
			period = min(2*period, drainPeriod)
		}
	}
}

// serve serves one name until no claim has devices of it, then removes the remaining files of the name.
func (s *formerServing) serve(ctx context.Context, name string) {
	logger := klog.FromContext(ctx).WithValues("driver", name)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	tx := formerTransaction{formerServing: s, name: name, released: make(chan struct{}, 1)}
	cfg := s.names.config(name)
	files := driver.DeviceMetadata{Files: driver.MetadataOf(cfg)}
	cfg.DeviceMetadata = false // which removes the files without the library
	server := &driver.Server{
		Handler: driver.New(driver.Options{Transaction: tx, Reports: noReports{}, Metrics: s.ports.metrics, Metadata: files, Fatal: func(err error) {
			logger.Error(err, "The plugin is not registered under an earlier driver name")
		}}), Config: cfg, Client: s.api.Claims,
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(serving) }()
	s.drain(ctx, name, tx.released)
	stop()
	if err := <-stopped; err != nil {
		logger.Error(err, "The plugin was not registered under an earlier driver name")
	}
	if ctx.Err() != nil {
		return
	}
	if err := s.names.remove(name); err != nil {
		logger.Error(err, "The directory of an earlier driver name stays")
		return
	}
	logger.Info("Nothing is left of an earlier driver name")
	s.api.Events.Normal(events.DriverNameChanged, events.ActionReconcile, fmt.Sprintf("No claim of the former driver name %s is left: the plugin is registered "+
		"as %s alone", name, s.names.cfg.DriverName))
}

// left counts the claims that the kubelet may have unprepared under the name: the claims with a record or, if no record exists, the claims
// with allocated devices of the name. It reports the records when their number changes. Listed: the API server has listed all claims.
func (s *formerServing) left(ctx context.Context, name string, reported *int) (n int, listed bool, err error) {
	stored := kube.Stored{Client: s.api.Background, DriverName: name, NodeName: s.names.cfg.NodeName}
	if err := stored.Remove(ctx); err != nil { // the kubelet does not remove them while the name is registered
		return 0, false, err
	}
	uids, err := s.names.state.Records.FormerUIDs(s.names.config(name).PluginDir())
	if err != nil {
		return 0, false, err
	}
	if len(uids) > 0 {
		if len(uids) != *reported {
			s.api.Events.Normal(events.DriverNameChanged, events.ActionReconcile, fmt.Sprintf("%d claims were prepared under the driver name %s, which is %s now: "+
				"their GPUs are tainted, and the plugin is registered under both names, until the pods of these claims are deleted", len(uids), name, s.names.cfg.DriverName))
		}
		*reported = len(uids)
		return len(uids), false, nil
	}
	query := kube.AllocatedQuery{Driver: name, Node: s.names.cfg.NodeName, Limit: allocatedPage}
	for {
		page, err := s.api.Cluster.Allocated(ctx, query)
		if err != nil {
			return 0, false, err
		}
		if len(page.Devices) > 0 {
			return len(page.Devices), true, nil
		}
		if page.Continue == "" {
			return 0, true, s.withdraw(ctx, name)
		}
		query.Continue = page.Continue
	}
}

// withdraw takes back the announcements of extensions under the name.
func (s *formerServing) withdraw(ctx context.Context, name string) error {
	var failed []error
	for _, e := range extension.All[extension.Withdrawer](s.extensions) {
		failed = append(failed, e.Withdraw(ctx, s.names.config(name), s.api.Background))
	}
	return errors.Join(failed...)
}

// allocatedPage is how many claims are read at once.
const allocatedPage = 500

// noReports reports nothing: the status of claims is written under the driver's present name.
type noReports struct{}

func (noReports) Prepared(*checkpoint.Record) {}

func (noReports) Refused(*resourceapi.ResourceClaim, error) {}

// formerTransaction unprepares claims of an earlier driver name, and prepares none.
type formerTransaction struct {
	*formerServing
	name     string
	released chan struct{}
}

// Prepare answers from the record of a claim that is prepared: the kubelet asks again after its restart.
func (t formerTransaction) Prepare(_ context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	r, err := t.names.state.Records.Load(string(rc.UID))
	if err == nil && r.State == checkpoint.Done && r.BootID == t.bootID && t.answers(r, rc) {
		return r, nil
	}
	return nil, &claim.Refusal{
		Cause: fmt.Sprintf("the claim was allocated devices of driver %s, whose name is %s now", t.name, t.names.cfg.DriverName),
		Fix:   "delete the pod, and the claim if it was not made from a template; requests name DeviceClasses of the new name",
	}
}

// answers reports whether a record is of the claim's allocation of the name.
func (t formerTransaction) answers(r *checkpoint.Record, rc *resourceapi.ResourceClaim) bool {
	if rc.Status.Allocation == nil {
		return false
	}
	results := slices.DeleteFunc(slices.Clone(rc.Status.Allocation.Devices.Results), func(result resourceapi.DeviceRequestAllocationResult) bool {
		return result.Driver != t.name
	})
	return slices.EqualFunc(r.Results, results, func(a checkpoint.Result, b resourceapi.DeviceRequestAllocationResult) bool {
		return a.Request == b.Request && a.Pool == b.Pool && a.Device == b.Device
	})
}

// Unprepare undoes the claim as under the present name.
func (t formerTransaction) Unprepare(ctx context.Context, uid string) error {
	err := t.ports.tx.Unprepare(ctx, uid)
	select {
	case t.released <- struct{}{}:
	default:
	}
	return err
}
