package session

import (
	"regexp"
	"time"
)

// Command is the request of a controller to the plugin of a node. Exactly one of Sessions, Claims and Selection is set.
type Command struct {
	// ID is a UUID of the client: the same id has the same answer.
	ID   string `json:"id"`
	Verb Verb   `json:"verb"`
	// Namespace is the namespace of all named or selected sessions and claims, NamespaceUID its UID.
	Namespace    string `json:"namespace"`
	NamespaceUID string `json:"namespaceUID,omitempty"`
	// Sessions are ids of sessions of any node, Claims names of claims; both at most MaxNames.
	Sessions  []string   `json:"sessions,omitempty"`
	Claims    []string   `json:"claims,omitempty"`
	Selection *Selection `json:"selection,omitempty"`
	// At is the beginning of the window that the recording covers: it begins earlier. The zero time: now.
	At time.Time `json:"at,omitzero"`
	// Duration is the length of the window in nanoseconds; 0: the claim's duration, or the
	// maximum, unless it is stopped before.
	Duration time.Duration `json:"duration,omitempty"`
	// SamplingFrequencyHz and Backtrace replace the claim's settings of CPU samples; 0 and "": they do not.
	SamplingFrequencyHz int32  `json:"samplingFrequencyHz,omitempty"`
	Backtrace           string `json:"backtrace,omitempty"`
	// DryRun answers alike and writes nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// Selection selects sessions with the selectors of lists; both may be "".
type Selection struct {
	Labels string `json:"labels,omitempty"`
	Fields string `json:"fields,omitempty"`
}

// Accepted is the answer of a node: its own sessions or claims that were named or selected.
type Accepted struct {
	// Names are the ids of the sessions, or names of the claims, for which the command is written.
	Names   []string  `json:"names,omitempty"`
	Refused []Refusal `json:"refused,omitempty"`
	// Now is the node's clock when it answered.
	Now time.Time `json:"now"`
}

// Refusal is why a command does not apply to one session or claim, in one sentence.
type Refusal struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// The limits of commands.
const (
	// MaxNames is the maximum number of named sessions or claims.
	MaxNames = 1000
	// MaxAhead is how far in the future a window may begin, MaxDuration its maximum length.
	MaxAhead    = 10 * time.Minute
	MaxDuration = 24 * time.Hour
)

// ValidID matches ids of commands: UUIDs in lower case.
var ValidID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// The lead of a recording: "nsys start" takes CPU time, so the more processes of a node begin together, the earlier they begin.
const (
	leadFirst   = 3 * time.Second
	leadSession = 500 * time.Millisecond
)

// Lead returns how long before a window the recordings of that many sessions of a node begin.
func Lead(sessions int) time.Duration { return leadFirst + time.Duration(sessions)*leadSession }
