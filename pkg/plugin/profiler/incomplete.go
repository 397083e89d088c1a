package profiler

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// expectedReasons are the reasons of False conditions that are no problem, or that kubectl prism profile list continues to show.
var expectedReasons = []string{"Ended", "NoReport", "NotStarted", string(report.Recording), string(report.Importing)}

// reportIncomplete writes an Event for a claim that is unprepared and whose profile has gaps. Kubernetes deletes the claim of a template,
// with its conditions, as soon as the pod has ended.
func (p *Extension) reportIncomplete(claimUID string) {
	r := p.followed.recordOf(claimUID)
	if r == nil || p.followed.events == nil {
		return
	}
	var said []string
	for _, c := range p.conditions(r) {
		if !c.True && !slices.Contains(expectedReasons, c.Reason) {
			said = append(said, fmt.Sprintf("%s: %s", c.Reason, c.Message))
		}
	}
	if len(said) > 0 {
		p.followed.events.WarnOfClaim(r.Claim.Namespace, r.Claim.Name, r.Claim.UID, events.ProfileIncomplete, events.ActionReconcile, strings.Join(said, " "))
	}
}

// recordOf returns the record of a claim whose pods have not ended, or nil if unknown.
func (f *followed) recordOf(claimUID string) *checkpoint.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.claims[claimUID]; known != nil && !slices.Contains(f.unprepared, claimUID) {
		return known.record
	}
	return nil
}

// logRate is the maximum of logged incomplete reports per second, logBurst the maximum at once: containers can create any number.
const logRate, logBurst = 1, 100

// incompleteLog logs why reports are incomplete.
type incompleteLog struct {
	logger klog.Logger
	rate   flowcontrol.PassiveRateLimiter
	// left is the number of reports that were not logged since the last logged one.
	left atomic.Int64
}

func newIncompleteLog(logger klog.Logger) *incompleteLog {
	return &incompleteLog{logger: logger, rate: flowcontrol.NewTokenBucketPassiveRateLimiter(logRate, logBurst)}
}

func (l *incompleteLog) log(r report.Report) {
	if r.State != report.Lost && r.State != report.Raw {
		return
	}
	if !l.rate.TryAccept() {
		l.left.Add(1)
		return
	}
	l.logger.Info("Report is incomplete", "claim", klog.KRef(r.Namespace, r.Claim), "report", r.ID, "state", r.State, "reason", r.Reason,
		"message", r.Message, "pod", r.Pod, "container", r.Container, "process", r.Process, "notLogged", l.left.Swap(0))
}

// logEvicted logs the report that was deleted for reports of another namespace.
func logEvicted(logger klog.Logger, r report.Report) {
	logger.Info("Deleted a report because another namespace uses less than its share of the node", "claim", klog.KRef(r.Namespace, r.Claim),
		"report", r.ID, "size", r.Size, "ended", r.Ended, "pod", r.Pod)
}
