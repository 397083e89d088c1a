package bench

import (
	"context"
	"fmt"
	"time"
)

// Restart is the cost of killing a plugin and starting it again while claims stay prepared.
type Restart struct {
	// Claims is the number of prepared claims.
	Claims int
	// Took is the time from the start of the process to its first answer.
	Took Samples
	// Reads and Writes are requests to the API server, the maximum of all restarts.
	Reads, Writes int
	// Records and Specs are the file operations of one more start on the files of the claims, including the time after the first answer.
	Records, Specs Files
}

// The budgets of a restart. Before it serves, the plugin lists and reads the records once. Reconciling starts at once. The first round
// recovers each record under its lock, and compares it with the API server and with its spec. It searches both directories for leaked
// effects and for incomplete files, and once more for damaged records.
const (
	readsPerRecord = 5
	readsPerSpec   = 1
	restartLists   = 8
	restartBudget  = 300 * time.Millisecond
)

// rows returns the rows of a section.
func (r Restart) rows() []Row {
	changed := r.Records.Changed + r.Specs.Changed + r.Records.Synced + r.Specs.Synced
	return []Row{
		{Name: "start to first answer, NVML init included", Samples: r.Took, Budget: Within(restartBudget)},
		{Name: "API writes", Count: r.Writes, Budget: AtMost(0)},
		{Name: "API reads", Count: r.Reads},
		{Name: "reads of records", Count: r.Records.Opened, Budget: AtMost(readsPerRecord * r.Claims)},
		{Name: "reads of CDI specs", Count: r.Specs.Opened, Budget: AtMost(readsPerSpec * r.Claims)},
		{Name: "listings of the directories of records and specs", Count: r.Records.Listed + r.Specs.Listed, Budget: AtMost(restartLists)},
		{Name: "records and specs written, moved, removed or synced", Count: changed, Budget: AtMost(0)},
	}
}

// restarts is the number of timed restarts. One more is traced, which takes longer.
const restarts = 5

// afterStart is how long a restarted plugin is observed for API writes: it compares its ResourceSlices within one sync delay.
const afterStart = 1500 * time.Millisecond

// Restarts kills the plugin and starts it again, several times, while this number of claims stays prepared.
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
		pause(ctx, afterStart)
		requests := all(logUnexpected("restarting", s.Gate.Take()))
		r.Took, r.Reads, r.Writes = append(r.Took, took), max(r.Reads, requests.Reads), max(r.Writes, requests.Writes)
	}
	if err := s.Kill(); err != nil {
		return r, err
	}
	calls, err := s.StartTraced(ctx, afterStart)
	if err != nil {
		return r, err
	}
	records, specs := s.recordsDir(), s.CDI
	r.Records, r.Specs = filesBelow(calls, records), filesBelow(calls, specs)
	if r.Records.Opened < claims {
		return r, fmt.Errorf("tracing a restart beside %d claims: only %d reads of records in %s were seen", claims, r.Records.Opened, records)
	}
	return r, ctx.Err()
}
