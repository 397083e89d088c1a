package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

// A status that cannot be written is retried after statusRetryFirst, with exponential back-off up to statusRetryMax, for statusAttempts
// attempts in all: about seven minutes, longer than an upgrade of the API server takes.
const (
	statusRetryFirst = 200 * time.Millisecond
	statusRetryMax   = 30 * time.Second
	statusAttempts   = 20
)

const (
	// statusWorkers is the number of statuses that are written concurrently.
	statusWorkers = 4
	// statusTimeout bounds one attempt.
	statusTimeout = 15 * time.Second
	// statusHold limits how long a report waits for the kubelet's calls to pause.
	statusHold = 2 * time.Second
)

// StatusesOptions configure NewStatuses.
type StatusesOptions struct {
	// Client is a client of the API server. If it limits its rate, it should not be the client that Prepare uses.
	Client kubernetes.Interface
	// DriverName is the driver of the entries, and the field manager.
	DriverName string
	// Conditions are the types of conditions that some devices use besides ConditionReady. A condition that is missing in a report is removed.
	Conditions []string
	// Delay is the delay of each write: so that writes do not compete with claims that are being prepared, and a report that is replaced
	// meanwhile is not written at all.
	Delay time.Duration
	// Quiet returns the time since the last call of the kubelet, 0 during a call. A report waits until it reaches Delay, for 2 s at most:
	// writes for earlier claims compete with a claim that is being prepared for the API server and the CPUs. Nil: reports only wait for Delay.
	Quiet func() time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// OnError is called for a claim's first failed attempt and after its last. It must not block. May be nil.
	OnError func(ClaimRef, error)
	// OnGone is called for a claim that was deleted, replaced or deallocated before its last report was written. It must not block. May be
	// nil.
	OnGone func(ClaimRef)
}

// StatusesStats are counts since NewStatuses.
type StatusesStats struct {
	// Written counts API writes, Unchanged the reports that needed none, Gone the reports whose claim was deleted, replaced or deallocated
	// before the write.
	Written, Unchanged, Gone int64
	// Errors counts failed attempts, GivenUp the reports whose attempts all failed.
	Errors, GivenUp int64
	// Pending is the number of claims whose report is not written yet.
	Pending int
}

// Statuses writes ResourceClaim.status.devices in the background. Reporting neither blocks nor fails; of several reports about a claim
// the last one wins. Entries of other drivers are not changed. All methods are safe for concurrent use.
type Statuses struct {
	opts     StatusesOptions
	attempts int
	queue    workqueue.TypedRateLimitingInterface[types.UID]
	counts   statusCounts

	mu      sync.Mutex
	pending map[types.UID]*report
	idle    chan struct{} // closed and replaced when no report is pending
}

type statusCounts struct{ written, unchanged, gone, errors, givenUp atomic.Int64 }

// report is the desired status of a claim's devices.
type report struct {
	claim   ClaimRef
	since   time.Time
	devices []Device
	ready   bool
	message string
	// conditions apply to all devices if devices is empty.
	conditions []Condition
}

// NewStatuses returns a writer. It accepts reports at once and writes them while Run runs.
func NewStatuses(opts StatusesOptions) *Statuses {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Statuses{
		opts:     opts,
		attempts: statusAttempts,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](statusRetryFirst, statusRetryMax)),
		pending: map[types.UID]*report{},
		idle:    make(chan struct{}),
	}
}

// Ready reports that these devices, all devices of this driver in the claim, are prepared.
func (s *Statuses) Ready(claim ClaimRef, devices []Device) {
	s.add(&report{claim: claim, devices: devices, ready: true, message: "The device is prepared on the node."})
}

// Failed reports that preparing the claim failed, with the message of the pod's events. Without devices it applies to all devices of
// this driver in the claim, and so do the conditions.
func (s *Statuses) Failed(claim ClaimRef, devices []Device, message string, conditions ...Condition) {
	s.add(&report{claim: claim, devices: devices, message: message, conditions: conditions})
}

func (s *Statuses) add(r *report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.ShuttingDown() {
		return
	}
	r.devices = slices.Clone(r.devices)
	if s.opts.Quiet != nil {
		r.since = s.opts.Now()
	}
	s.pending[r.claim.UID] = r
	s.queue.Forget(r.claim.UID)
	s.queue.AddAfter(r.claim.UID, s.opts.Delay)
}

// Run writes reports until ctx is done, then returns nil without writing pending ones. It runs once.
func (s *Statuses) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range statusWorkers {
		workers.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	workers.Wait()
	return nil
}

// Drain waits until every earlier report is written or given up. If ctx is done first, the error contains the number of pending reports.
// Run must be running.
func (s *Statuses) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		n, idle := len(s.pending), s.idle
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("writing the pending status of %d ResourceClaims: %w", n, context.Cause(ctx))
		}
	}
}

// Stats returns the counts so far.
func (s *Statuses) Stats() StatusesStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StatusesStats{
		Written:   s.counts.written.Load(),
		Unchanged: s.counts.unchanged.Load(),
		Gone:      s.counts.gone.Load(),
		Errors:    s.counts.errors.Load(),
		GivenUp:   s.counts.givenUp.Load(),
		Pending:   len(s.pending),
	}
}

// next writes the report of one claim; false after the queue was shut down.
func (s *Statuses) next(ctx context.Context) bool {
	uid, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(uid)
	s.mu.Lock()
	r := s.pending[uid]
	s.mu.Unlock()
	if r == nil {
		return true
	}
	if wait := s.untilQuiet(r); wait > 0 {
		s.queue.AddAfter(uid, wait)
		return true
	}
	attempt, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	result, err := s.write(attempt, r)
	switch {
	case err == nil:
		s.count(result)
		if s.finish(uid, r) && result == gone && s.opts.OnGone != nil {
			s.opts.OnGone(r.claim)
		}
	case ctx.Err() == nil:
		s.fail(uid, r, err)
	}
	return true
}

// untilQuiet returns how long a report must wait until the kubelet's calls have paused for long enough; 0: it is written now.
func (s *Statuses) untilQuiet(r *report) time.Duration {
	if s.opts.Quiet == nil || s.opts.Now().Sub(r.since) >= statusHold {
		return 0
	}
	return s.opts.Delay - s.opts.Quiet()
}

// finish removes a report, unless a newer one replaced it.
func (s *Statuses) finish(uid types.UID, r *report) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[uid] != r {
		return false
	}
	s.queue.Forget(uid)
	delete(s.pending, uid)
	if len(s.pending) == 0 {
		close(s.idle)
		s.idle = make(chan struct{})
	}
	return true
}

// fail retries a report later, or gives it up.
func (s *Statuses) fail(uid types.UID, r *report, err error) {
	s.counts.errors.Add(1)
	err = fmt.Errorf("writing the status of ResourceClaim %s: %w", r.claim, err)
	before := s.queue.NumRequeues(uid)
	if before+1 >= s.attempts {
		s.counts.givenUp.Add(1)
		s.finish(uid, r)
		s.reportError(r.claim, fmt.Errorf("gave up after %d attempts: %w", s.attempts, err))
		return
	}
	if before == 0 {
		s.reportError(r.claim, err)
	}
	s.queue.AddRateLimited(uid)
}

func (s *Statuses) reportError(claim ClaimRef, err error) {
	if s.opts.OnError != nil {
		s.opts.OnError(claim, err)
	}
}

func (s *Statuses) count(result outcome) {
	switch result {
	case written:
		s.counts.written.Add(1)
	case unchanged:
		s.counts.unchanged.Add(1)
	case gone:
		s.counts.gone.Add(1)
	}
}
