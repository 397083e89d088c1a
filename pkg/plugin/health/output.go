package health

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

const (
	// publishInterval is the shortest time between two publications: the first change is published at once, the next ones together.
	publishInterval = 5 * time.Second
	// A failed write is repeated after writeRetry, then after twice as long each time up to writeRetryMax.
	writeRetry    = time.Second
	writeRetryMax = time.Minute
)

// output stores and publishes the findings, and writes Events.
type output struct {
	book      *book
	facts     *facts
	setTaints func(rules []publish.TaintRule)
	notices   notices

	// mu is held while publishing, so that the newest findings come last; it guards the following fields.
	mu   sync.Mutex
	file file
	// published are the rules that were published last, and next is when others may be.
	published []publish.TaintRule
	next      time.Time
	// deferred: the present rules are published at next.
	deferred bool
	retry    backoff.Backoff
	// inherit reads the file of the process before, which could not be read; nil if it was. Until then the file is not written.
	inherit func() error
	// ended is closed when this process does not lead any more; nil before it leads.
	ended <-chan struct{}
	// reported are the findings of which Events were written.
	reported []finding.Finding
}

// lead has the findings stored until ended is closed. Reported are the findings that the process before has reported; inherit reads them if
// that has failed.
func (o *output) lead(ended <-chan struct{}, reported []finding.Finding, inherit func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended, o.reported, o.inherit = ended, reported, inherit
	_ = o.file.disk.Remove(o.file.path() + disk.TempSuffix) // the unfinished file of a killed process
}

// leads reports whether this process leads. The caller holds mu.
func (o *output) leads() bool {
	select {
	case <-o.ended:
		return false
	default:
		return o.ended != nil
	}
}

// publish stores and publishes the present findings if they have changed. Unless it is urgent, taints are published publishInterval after the
// last ones at the earliest; then due says when.
func (o *output) publish(urgent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	all, saved, unknown := o.book.snapshot()
	leads := o.leads()
	if leads {
		saved.GPUs = o.facts.last()
		o.store(saved, now)
		o.notices.unknown(unknown)
	}
	if rules := taintRules(all); !reflect.DeepEqual(rules, o.published) {
		if !urgent && now.Before(o.next) {
			if !o.deferred {
				o.deferred = true
				o.book.renew() // Run waits until then
			}
			return
		}
		o.setTaints(rules)
		o.published, o.next = rules, now.Add(publishInterval)
	}
	o.deferred = false
	if leads {
		o.notices.changes(o.reported, all)
		o.reported = all
	}
}

// store writes the file. If that fails, the findings are published all the same, and the write is repeated: a sick GPU must be tainted also on
// a full disk. The caller holds mu.
func (o *output) store(saved content, now time.Time) {
	if !o.retry.Due(now) {
		return
	}
	if o.inherit != nil {
		if err := o.inherit(); err != nil {
			o.retry.Defer(now)
			klog.Background().Error(err, "Findings of GPUs before the start of the plugin are not known; retrying")
			return
		}
		o.inherit = nil
		o.retry.Reset()
		return // what was read is stored and published next
	}
	if err := o.file.save(saved); err != nil {
		o.retry.Defer(now)
		klog.Background().Error(err, "A restart of the plugin would lose findings of GPUs until the next poll; retrying")
		return
	}
	o.retry.Reset()
}

// due is when publish has something to do again; zero: when the findings change.
func (o *output) due() (due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deferred {
		due = o.next
	}
	if retry := o.retry.Next(); !retry.IsZero() && (due.IsZero() || retry.Before(due)) {
		due = retry
	}
	return due
}

// taintRules are the taints of findings: one of each key for a GPU.
func taintRules(all []finding.Finding) (rules []publish.TaintRule) {
	for _, f := range finding.Taints(all) {
		rule := publish.TaintRule{
			Name: string(f.Key), Value: f.Value, Effect: resourceapi.DeviceTaintEffect(f.Effect), TimeAdded: metav1.NewTime(f.Begin),
			GPUs: map[gpu.UUID]bool{f.GPU: true}, WithoutTaints: publish.Ignore,
		}
		if f.Blocks() {
			rule.WithoutTaints = publish.WithdrawGPUs
		}
		same := func(r publish.TaintRule) bool {
			return r.Name == rule.Name && r.Value == rule.Value && r.Effect == rule.Effect && r.TimeAdded.Equal(&rule.TimeAdded)
		}
		if i := slices.IndexFunc(rules, same); i >= 0 {
			rules[i].GPUs[f.GPU] = true
			continue
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b publish.TaintRule) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect), a.TimeAdded.Compare(b.TimeAdded.Time))
	})
	return rules
}
