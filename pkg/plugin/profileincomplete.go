package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// expectedReasons are those of False conditions that say nothing is wrong, or what kubectl prism profile list goes on to say.
var expectedReasons = []string{"Ended", "NoReport", string(report.Recording), string(report.Importing)}

// reportIncomplete writes an Event of a claim that is unprepared and whose profile has gaps. Kubernetes deletes the claim of a template, with its
// conditions, as soon as the pod has ended.
func (p *profiles) reportIncomplete(claimUID string) {
	r := recordOf(p.followed, claimUID)
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

// recordOf is the record of a claim whose pods have not ended; nil where that is not known.
func recordOf(f *followed, claimUID string) *checkpoint.Record {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.claims[claimUID]; known != nil && !slices.Contains(f.unprepared, claimUID) {
		return known.record
	}
	return nil
}
