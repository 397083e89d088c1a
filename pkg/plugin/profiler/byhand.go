package profiler

import (
	"fmt"
	"io/fs"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/sessions"
)

// openSessions opens the processes of the node's claims that are recorded by hand.
func (p *Extension) openSessions(o Options) {
	p.sessions = sessions.New(sessions.Options{
		Files: o.Files, Now: o.Now, Prepared: p.store.Prepared, Leads: p.store.Leads, Arm: p.arm,
		Failed: func(claimUID string, err error) {
			p.logger.Error(err, "Writing or removing a command for the processes of a claim failed", "claimUID", claimUID)
		},
	})
}

// arm makes a prepared claim select processes, or no more processes.
func (p *Extension) arm(claimUID string, armed bool) error {
	if !armed {
		return p.store.Arm(claimUID, false, nil)
	}
	records, err := p.cluster.records()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Claim.UID != claimUID {
			continue
		}
		c, err := p.decoded.configs.Of(r)
		if err != nil {
			return err
		}
		match, err := plan.Match(c, p.decoded.patterns)
		if err != nil {
			return err
		}
		return p.store.Arm(claimUID, true, match)
	}
	return fmt.Errorf("claim %s has no record: %w", claimUID, fs.ErrNotExist)
}
