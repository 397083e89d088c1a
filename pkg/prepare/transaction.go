package prepare

import (
	"context"
	"errors"
	"sync"
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
	// All returns what can be read, and one error per record that was set aside. checkpoint.ErrUnreadable: there are records
	// of which nothing is known.
	All() (records []*checkpoint.Record, damaged []error, err error)
	// Unfinished lists the claims whose record somebody began to write; Discard removes that and leaves the record alone.
	// SetAside lists the claims that have a damaged record.
	SetAside() (uids []string, err error)
	Unfinished() (uids []string, err error)
	Discard(uid string) error
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
	// Write puts the spec in place; a file that says the same already is left alone.
	Write(claimUID string, spec *specs.Spec) error
	// Holds tells whether the claim's spec is there with exactly these devices.
	Holds(claimUID string, devices []string) bool
	// Remove is no error when there is nothing to remove.
	Remove(claimUID string) error
	// Claims lists the claims that have a spec.
	Claims() (uids []string, err error)
	// Unfinished lists the claims whose spec somebody began to write; Discard removes that and leaves the spec alone.
	Unfinished() (uids []string, err error)
	Discard(claimUID string) error
}

// Planner reads claims; claim.Source against the node's present state is the real one.
type Planner interface {
	// AllocationKeys lists this driver's allocation results as they stand in the claim.
	AllocationKeys(rc *resourceapi.ResourceClaim) []claim.AllocationKey
	// Resolve makes a plan, or says in a *claim.Refusal why there can be none.
	Resolve(rc *resourceapi.ResourceClaim) (*claim.Plan, error)
}

// Ports is what a Transaction works on.
type Ports struct {
	Records Records
	Locks   Locks
	Specs   Specs
	Planner Planner
	// Steps are the kinds of effects a plan may name, Needs the kinds of states.
	Steps map[string]Step
	Needs map[string]Need
	// Static is asked where a plan has MIG devices that an administrator made.
	Static Static
}

// Settings are the facts and limits of a Transaction.
type Settings struct {
	// CDIKind is the kind of the specs.
	CDIKind string
	// BootID is the machine's present boot.
	BootID string
	// Writer is this program's version.
	Writer string
	// Patience bounds one call with all its waits and retries. The kubelet gives a call 45 s and tries again only after 60 to
	// 90 s.
	Patience time.Duration
	// DebtAfter is for how long Unprepare reports that undoing fails before it lets the pod go and keeps a debt.
	DebtAfter time.Duration
	// Retrying is told why a claim's Prepare is about to wait and try again; it must not block. May be nil.
	Retrying func(rc *resourceapi.ResourceClaim, cause error)
	// Damaged is told of every record that had to be set aside after New returned; it must not block. May be nil.
	Damaged func(err error)
	// Owing is told what is owed, in the order of the GPUs, whenever that changes, so that the scheduler can be told; it must not
	// block. May be nil.
	Owing func(debts []gpu.PendingCleanup)
	// Found is told, once, of the records that New read, which are the listener's from then on; not where they cannot be read. It must not
	// block. May be nil.
	Found func(records []*checkpoint.Record)
	// Withheld returns why no claim gets a GPU that is not prepared yet, nil where nothing keeps it; it must not block. Claims with a
	// record are prepared in any case. May be nil.
	Withheld func() error
	// Now is the clock that debts are dated by.
	Now func() time.Time
}

// Transaction prepares and unprepares claims. It is safe for concurrent use; calls for different GPUs do not wait for each
// other. A call holds at most one claim's lock, takes it first, and takes the locks of GPUs all at once.
type Transaction struct {
	Ports
	settings Settings
	holders  *holders
	// inVain holds by claim UID since when this process was asked in vain to unprepare what a newer version prepared.
	inVain sync.Map
}

// New reads the records and returns a Transaction that knows who holds what. Records that had to be set aside, or cannot be
// read, are in damaged; they are no reason not to serve.
func New(ports Ports, settings Settings) (t *Transaction, damaged []error, err error) {
	t = &Transaction{Ports: ports, settings: settings, holders: newHolders(settings.Owing)}
	records, damaged, err := ports.Records.All()
	if err != nil && !errors.Is(err, checkpoint.ErrUnreadable) {
		return nil, nil, err
	}
	if err != nil {
		damaged = append(damaged, err) // nobody trusts these records before he has read them all
	}
	for _, r := range records {
		t.holders.put(r)
	}
	if err == nil && settings.Found != nil {
		settings.Found(records)
	}
	return t, damaged, nil
}

// report passes on that records were set aside.
func (t *Transaction) report(damaged ...error) {
	if t.settings.Damaged == nil {
		return
	}
	for _, err := range damaged {
		t.settings.Damaged(err)
	}
}

// Counts returns how many claims are prepared here, and how many of the records are debts.
func (t *Transaction) Counts() (claims, debts int) { return t.holders.counts() }
