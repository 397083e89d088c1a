package prepare

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// OrphanKind says what an Orphan was.
type OrphanKind string

// The kinds of orphans.
const (
	// OrphanClaim is a record whose claim is gone, with everything that it names.
	OrphanClaim OrphanKind = "claim"
	// OrphanSpec is a CDI spec of a claim without record.
	OrphanSpec OrphanKind = "spec"
	// OrphanEffect is a hardware effect that no record names.
	OrphanEffect OrphanKind = "effect"
	// OrphanFile is a file that somebody died of writing.
	OrphanFile OrphanKind = "file"
)

// OrphanKinds lists them all.
var OrphanKinds = []OrphanKind{OrphanClaim, OrphanSpec, OrphanEffect, OrphanFile}

// Orphan is something of ours that nobody owned any more, and that was taken away.
type Orphan struct {
	Kind OrphanKind
	// Claim is whose it was. Of specs and files only the UID is known, of effects nothing.
	Claim checkpoint.Claim
	// GPU had the effect; empty for what is no effect.
	GPU gpu.UUID
	// What names the kind of effect or of file: "mig", "record", "CDI spec". Empty for claims and specs.
	What string
}

// String names it in a sentence.
func (o Orphan) String() string {
	switch o.Kind {
	case OrphanClaim:
		return fmt.Sprintf("claim %s/%s (UID %s)", o.Claim.Namespace, o.Claim.Name, o.Claim.UID)
	case OrphanSpec:
		return "CDI spec of claim " + o.Claim.UID
	case OrphanEffect:
		return fmt.Sprintf("%s on GPU %s", o.What, o.GPU)
	default:
		return fmt.Sprintf("unfinished %s of claim %s", o.What, o.Claim.UID)
	}
}
