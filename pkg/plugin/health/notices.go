package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

// notices are the Events about findings.
type notices struct {
	events events.Recorder
	facts  *facts
}

// changes reports findings that began and ended. Findings that keep no claims away are only taints, and maintenance is only an annotation.
func (n notices) changes(before, now []finding.Finding) {
	for i := range now {
		f := &now[i]
		at := slices.IndexFunc(before, func(b finding.Finding) bool { return same(&b, f) })
		if f.Unhealthy() && at < 0 {
			n.began(f)
		}
		if f.Flapping && (at < 0 || !before[at].Flapping) {
			n.events.Warn(events.GPUFlapping, events.ActionDetect, fmt.Sprintf("%s has had the problem %s for the third time within an hour, and gets no new claims "+
				"until it is healed or the node boots", n.facts.name(f.GPU), title(f)))
		}
	}
	for i := range before {
		f := &before[i]
		if f.Unhealthy() && !slices.ContainsFunc(now, func(a finding.Finding) bool { return same(&a, f) || replaces(&a, f) }) {
			n.ended(f, now)
		}
	}
}

func (n notices) began(f *finding.Finding) {
	reason := events.GPUUnhealthy
	if f.Value == finding.DeviceNode && f.Key == finding.GPULost {
		reason = events.DeviceNodesMissing
	}
	n.events.Warn(reason, events.ActionDetect, fmt.Sprintf("%s gets no new claims (%s): %s", n.facts.name(f.GPU), title(f), finding.Message(f)))
}

func (n notices) ended(f *finding.Finding, now []finding.Finding) {
	reason := events.GPURecovered
	if f.Value == finding.DeviceNode && f.Key == finding.GPULost {
		reason = events.DeviceNodesRestored
	}
	var left []string
	for i := range now {
		if now[i].GPU == f.GPU && now[i].Blocks() {
			left = append(left, title(&now[i]))
		}
	}
	effect := "and it gets new claims again"
	if len(left) > 0 {
		effect = "but it still gets no new claims: " + strings.Join(left, ", ")
	}
	n.events.Normal(reason, events.ActionDetect, fmt.Sprintf("%s no longer has the problem %s, %s", n.facts.name(f.GPU), title(f), effect))
}

// unknown reports codes of XID errors that are in no table.
func (n notices) unknown(codes []uint64) {
	for _, code := range codes {
		n.events.Warn(events.GPUXIDUnknown, events.ActionDetect, fmt.Sprintf("The NVIDIA driver has reported XID %d, which Prism does not know, and which changes "+
			"nothing; the chart value health.xids decides whether it taints the GPU", code))
	}
}

// unreadable reports that the stored findings cannot be read.
func (n notices) unreadable(err error) {
	n.events.Warn(events.HealthStateUnreadable, events.ActionRecover, "The stored findings of GPUs are lost; polls find them again, except XID errors: "+err.Error())
}

// title is the taint without the driver's domain.
func title(f *finding.Finding) string {
	if f.Value == "" {
		return string(f.Key)
	}
	return string(f.Key) + "=" + f.Value
}

func same(a, b *finding.Finding) bool { return a.GPU == b.GPU && a.Key == b.Key && a.Value == b.Value }

// replaces reports whether the present finding is the same problem as the earlier one, with another value.
func replaces(now, before *finding.Finding) bool {
	return now.GPU == before.GPU && now.Key == before.Key && now.Blocks() && finding.OneValue(now.Key)
}
