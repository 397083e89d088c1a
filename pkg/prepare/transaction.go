package prepare

import (
	"context"
	"encoding/json"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Records keeps one record per claim; checkpoint.Store is the real one.
type Records interface {
	// Put is durable when it returns.
	Put(r *checkpoint.Record) error
	// Load returns gpu.ErrNotFound, or checkpoint.ErrDamaged for a record that it has set aside.
	Load(uid string) (*checkpoint.Record, error)
	// Delete is durable when it returns; no error when there is nothing to delete.
	Delete(uid string) error
	// All returns what can be read, and one error per record that was set aside.
	All() (records []*checkpoint.Record, damaged []error, err error)
}

// Locks orders work on claims and GPUs; checkpoint.Locks is the real one.
type Locks interface {
	Claim(ctx context.Context, uid string) (release func(), err error)
	GPUs(ctx context.Context, uuids []gpu.UUID) (release func(), foreign bool, err error)
}

// Specs makes and keeps CDI specs.
type Specs interface {
	// Build joins a spec and verifies that every device node is there; a device that cannot be given is a *cdi.DeviceError.
	Build(o cdi.Order) (*specs.Spec, error)
	Write(claimUID string, spec *specs.Spec) error
	// Holds tells whether the claim's spec is there with exactly these devices.
	Holds(claimUID string, devices []string) bool
	// Remove is no error when there is nothing to remove.
	Remove(claimUID string) error
}

// Planner makes plans; claim.Source against the node's present state is the real one.
type Planner interface {
	Resolve(rc *resourceapi.ResourceClaim) (*claim.Plan, error)
}

// Step is one kind of hardware effect. Both halves are idempotent.
type Step interface {
	// Do makes the effect that the step's Args ask for and says what it made. On an error it has made nothing that Undo,
	// given the same step without Made, would not find.
	Do(ctx context.Context, s checkpoint.Step) (made json.RawMessage, err error)
	// Undo takes the effect back. Nothing to take back is no error.
	Undo(ctx context.Context, s checkpoint.Step) error
}

// Ports is what a Transaction works on.
type Ports struct {
	Records Records
	Locks   Locks
	Specs   Specs
	Planner Planner
	// Steps are the kinds of effects a plan may name.
	Steps map[string]Step
}

// Settings are the facts and limits of a Transaction.
type Settings struct {
	// CDIKind is the kind of the specs.
	CDIKind string
	// BootID is the machine's present boot.
	BootID string
	// Writer is this program's version.
	Writer string
	// Patience bounds the retries inside one call. The kubelet gives a call 45 s and tries again only after 60 to 90 s.
	Patience time.Duration
	// DebtAfter is for how long Unprepare reports that undoing fails before it lets the pod go and keeps a debt.
	DebtAfter time.Duration
	// Retrying is told why a claim's Prepare is about to wait and try again; it must not block. May be nil.
	Retrying func(rc *resourceapi.ResourceClaim, cause error)
	// Now is the clock.
	Now func() time.Time
}

// Transaction prepares and unprepares claims. It is safe for concurrent use; calls for different GPUs do not wait for each
// other.
type Transaction struct {
	Ports
	settings Settings
	holders  *holders
}

// New reads the records and returns a Transaction that knows who holds what. Records that had to be set aside are in
// damaged; they are no reason not to serve.
func New(ports Ports, settings Settings) (t *Transaction, damaged []error, err error) {
	t = &Transaction{Ports: ports, settings: settings, holders: newHolders()}
	records, damaged, err := ports.Records.All()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range records {
		t.holders.put(r)
	}
	return t, damaged, nil
}

// Counts returns how many claims are prepared here, and how many of the records are debts.
func (t *Transaction) Counts() (claims, debts int) { return t.holders.counts() }
