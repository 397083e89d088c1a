// Package session contains the types of recording by hand: a session is a process that waits until a command records it. Nodes describe
// sessions, controllers pass commands to nodes, and a node writes commands for prism-run, which answers. It is pure data.
package session

import (
	"cmp"
	"strings"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// State is the state of a session.
type State string

// The states. A session is Waiting before and after each recording.
const (
	Waiting   State = "Waiting"
	Starting  State = "Starting"
	Recording State = "Recording"
	Ending    State = "Ending"
)

// States are all states.
var States = []State{Waiting, Starting, Recording, Ending}

// Session is a process that can be recorded. Strings of the container are escaped and bounded.
type Session struct {
	// ID is unique on all nodes and a DNS label: the first 8 hex digits of the claim's UID, a dash, and the name of the session's folder.
	ID string `json:"id"`
	// Namespace, Claim and ClaimUID name the ResourceClaim; NamespaceUID is "" if unknown.
	Namespace    string `json:"namespace"`
	NamespaceUID string `json:"namespaceUID,omitempty"`
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"`
	Pod          string `json:"pod,omitempty"`
	Container    string `json:"container,omitempty"`
	Node         string `json:"node"`
	// Process is the base name of the program, PID its process id in the container.
	Process string `json:"process,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Tool is the version of the profiler.
	Tool string `json:"tool,omitempty"`
	// Started is the start of the process, Since the time of the last change of State.
	Started time.Time `json:"started"`
	Since   time.Time `json:"since"`
	State   State     `json:"state"`
	// Last is the answer to the last command, or the command that is still open; nil if there was none.
	Last *Answer `json:"last,omitempty"`
}

// Key orders the sessions of a node. It is part of the tokens of lists.
func (s Session) Key() string { return s.ID + s.ClaimUID }

// Compare orders sessions in the same way as their keys.
func (s Session) Compare(other Session) int {
	if len(s.ID) == len(other.ID) {
		return cmp.Or(strings.Compare(s.ID, other.ID), strings.Compare(s.ClaimUID, other.ClaimUID))
	}
	return strings.Compare(s.Key(), other.Key())
}

// Verb is the verb of a command.
type Verb = v1alpha1.SessionVerb

// Outcome is the result of a command for one session: a word of the API.
type Outcome string

// The outcomes. Open and NoAnswer are the plugin's, all others prism-run's.
const (
	// Open: the command is written, and not answered yet.
	Open Outcome = "Open"
	// NoAnswer: the command was not answered in time.
	NoAnswer Outcome = "NoAnswer"
	// Begun: the recording has begun, and continues.
	Begun Outcome = "Recording"
	// Recorded: the recording has ended, and its report is written.
	Recorded Outcome = "Recorded"
	// Cancelled: the recording has ended, and its report is deleted.
	Cancelled Outcome = "Cancelled"
	// AlreadyRecording refuses a Start, NotRecording a Stop or a Cancel.
	AlreadyRecording Outcome = "AlreadyRecording"
	NotRecording     Outcome = "NotRecording"
	// StoreFull: recordings are stopped for the claim, because its reports reached their limit.
	StoreFull Outcome = "StoreFull"
	// ProcessEnded: the process exited before the command was carried out.
	ProcessEnded Outcome = "ProcessEnded"
	// Failed: the profiler failed; Message is its output.
	Failed Outcome = "Failed"
)

// Outcomes are prism-run's outcomes.
var Outcomes = []Outcome{Begun, Recorded, Cancelled, AlreadyRecording, NotRecording, StoreFull, ProcessEnded, Failed}

// Final reports whether a command is over.
func (o Outcome) Final() bool { return o != Open && o != Begun }

// Answer is the state of a command for one session. All but the command itself is the word of the container, like the names of pod and
// process.
type Answer struct {
	// ID is the command's id. Verb is "" if only prism-run's answer is known.
	ID      string  `json:"id"`
	Verb    Verb    `json:"verb,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Begun is when the profiler answered that it records, Ended when the recording ended.
	Begun *time.Time `json:"begun,omitempty"`
	Ended *time.Time `json:"ended,omitempty"`
	// Report is the id of the recording's report.
	Report  string `json:"report,omitempty"`
	Message string `json:"message,omitempty"`
}
