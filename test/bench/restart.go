package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Restart is what it takes to end a plugin without warning and to start it again while claims stay prepared.
type Restart struct {
	// Claims are prepared.
	Claims int
	// Took is from birth to the first answer.
	Took Samples
	// Reads and Writes are requests to the API server, the most of any restart.
	Reads, Writes int
	// Records and Specs are what one more start does to the files of the claims, also in the time after the first answer.
	Records, Specs Files
}

// The budgets of a restart. Before it serves, the plugin lists and reads the records once. The first round of reconciling,
// which comes at once, settles each record under its lock, compares it with the API server, and its spec with it; both
// directories are looked through for what nobody owns and for what is half written, and once more for damaged records.
const (
	readsPerRecord = 5
	readsPerSpec   = 1
	restartLists   = 8
)

// exceeded says which counts exceed their budgets.
func (r Restart) exceeded() []error {
	var problems []error
	for _, one := range []struct {
		what       string
		got, limit int
	}{
		{"API writes", r.Writes, 0},
		{"reads of records", r.Records.Opened, readsPerRecord * r.Claims},
		{"reads of CDI specs", r.Specs.Opened, readsPerSpec * r.Claims},
		{"listings of directories", r.Records.Listed + r.Specs.Listed, restartLists},
		{"writes, moves and removals of records and specs", r.Records.Changed + r.Specs.Changed, 0},
		{"syncs of records and specs", r.Records.Synced + r.Specs.Synced, 0},
	} {
		if one.got > one.limit {
			problems = append(problems, fmt.Errorf("a restart beside %d prepared claims takes %d %s, not %d", r.Claims, one.got, one.what, one.limit))
		}
	}
	return problems
}

// restarts are timed. One more is traced, which takes longer.
const restarts = 5

// afterStart is how long a restarted plugin is watched for API writes: its slices are compared within one sync delay.
const afterStart = 1500 * time.Millisecond

// Restarts kills the plugin and starts it again, several times, while so many claims stay prepared.
func (s *Second) Restarts(ctx context.Context, claims int) (r Restart, err error) {
	r.Claims = claims
	for range restarts {
		if err := s.Kill(); err != nil {
			return r, err
		}
		s.Gate.Take()
		took, err := s.Start(ctx)
		if err != nil {
			return r, err
		}
		settle(ctx, afterStart)
		requests := all(s.Gate.Take())
		r.Took, r.Reads, r.Writes = append(r.Took, took), max(r.Reads, requests.Reads), max(r.Writes, requests.Writes)
	}
	if err := s.Kill(); err != nil {
		return r, err
	}
	calls, err := s.StartTraced(ctx, afterStart)
	if err != nil {
		return r, err
	}
	records, specs := filepath.Join(s.pluginDir(), "claims"), s.cdiDir()
	r.Records, r.Specs = filesBelow(calls, records), filesBelow(calls, specs)
	if r.Records.Opened < claims {
		return r, fmt.Errorf("tracing a restart beside %d claims: only %d reads of records in %s were seen", claims, r.Records.Opened, records)
	}
	return r, ctx.Err()
}

// StartTraced is Start with a trace of what the plugin does to files until some time after its first answer.
func (s *Second) StartTraced(ctx context.Context, after time.Duration) (calls []Syscall, err error) {
	// The shell waits until it is traced and becomes the plugin then.
	if err := s.spawn(ctx, "/bin/sh", "-c", `read -r go && exec "$0" "$@"`, s.Binary); err != nil {
		return nil, err
	}
	calls, err = Trace(ctx, s.command.Process.Pid, tracedFiles, func() error {
		if _, err := s.input.Write([]byte("go\n")); err != nil {
			return fmt.Errorf("starting a second plugin: %w", err)
		}
		if err := s.await(ctx); err != nil {
			return err
		}
		settle(ctx, after)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	return calls, nil
}
