package gc

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Kind is the kind of a leak.
type Kind string

// The kinds of leaks.
const (
	// LeakedClaim is a record whose claim is gone, with its spec and its effects.
	LeakedClaim Kind = "claim"
	// LeakedSpec is a CDI spec of a claim without record.
	LeakedSpec Kind = "spec"
	// LeakedEffect is a hardware effect that no record names.
	LeakedEffect Kind = "effect"
	// LeakedFile is a file whose writing was interrupted.
	LeakedFile Kind = "file"
)

// Kinds lists them all.
var Kinds = []Kind{LeakedClaim, LeakedSpec, LeakedEffect, LeakedFile}

// Leak is an effect or a file of this driver that belonged to no claim any more, and was removed.
type Leak struct {
	Kind Kind
	// Claim is the one it was made for. Specs and files have only the UID, effects no claim.
	Claim checkpoint.Claim
	// GPU is the GPU with the effect; empty for another kind.
	GPU gpu.UUID
	// What names the kind of effect or of file: "mig", "record", "CDI spec". Empty for claims and specs.
	What string
}

// String names it in a sentence, which may become an Event of the Node: claims are named by their UIDs.
func (l Leak) String() string {
	switch l.Kind {
	case LeakedClaim:
		return "claim " + l.Claim.UID
	case LeakedSpec:
		return "CDI spec of claim " + l.Claim.UID
	case LeakedEffect:
		return fmt.Sprintf("%s on GPU %s", l.What, l.GPU)
	default:
		return fmt.Sprintf("unfinished %s of claim %s", l.What, l.Claim.UID)
	}
}
