package profiler

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/sessions"
)

// openSessions opens the processes of the node's claims that are recorded by hand.
func (p *Extension) openSessions(o Options) {
	p.sessions = sessions.New(sessions.Options{
		Files: o.Files, Now: o.Now, Prepared: p.store.Prepared, Leads: p.store.Leads, Arm: p.arm,
		MaxDuration: p.maxDuration,
		Failed: func(claimUID string, err error) {
			p.logger.Error(err, "Writing or removing a command for the processes of a claim failed", "claimUID", claimUID)
		},
	})
}

// arm returns the function that makes prepared claims select processes, or no more processes. It reads the records of the node once, for
// all claims of a command.
func (p *Extension) arm(armed bool) (func(claimUID string) error, error) {
	if !armed {
		return func(claimUID string) error { return p.store.Arm(claimUID, false, nil) }, nil
	}
	records, err := p.cluster.records()
	if err != nil {
		return nil, err
	}
	return func(claimUID string) error {
		i := slices.IndexFunc(records, func(r *checkpoint.Record) bool { return r.Claim.UID == claimUID })
		if i < 0 {
			return fmt.Errorf("claim %s has no record: %w", claimUID, fs.ErrNotExist)
		}
		c, err := p.decoded.configs.Of(records[i])
		if err != nil {
			return err
		}
		match, err := plan.Match(c, p.decoded.patterns)
		if err != nil {
			return err
		}
		return p.store.Arm(claimUID, true, match)
	}, nil
}
