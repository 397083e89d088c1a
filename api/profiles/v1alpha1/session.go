package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Session is a process that waits until a SessionCommand records it.
type Session struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SessionSpec   `json:"spec"`
	Status SessionStatus `json:"status"`
}

// SessionSpec identifies the process.
type SessionSpec struct {
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claimUID"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Node      string `json:"node"`
	Process   string `json:"process,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Tool      string `json:"tool,omitempty"`
}

// SessionStatus is the state of a session, and of the last command for it.
type SessionStatus struct {
	// State is Waiting, Starting, Recording or Ending; Since is when it began.
	State string      `json:"state"`
	Since metav1.Time `json:"since"`
	// LastCommand is absent if there was none.
	LastCommand *LastCommand `json:"lastCommand,omitempty"`
}

// LastCommand is the last command for a session. All but id and verb is the word of the container.
type LastCommand struct {
	ID   string      `json:"id"`
	Verb SessionVerb `json:"verb,omitempty"`
	// Outcome is Open until the session has answered, or NoAnswer if it does not; Recording while it records; then Recorded, Cancelled,
	// AlreadyRecording, NotRecording, StoreFull, ProcessEnded or Failed.
	Outcome string `json:"outcome"`
	// Begun is when the profiler answered that it records, Ended when the recording ended.
	Begun *metav1.MicroTime `json:"begun,omitempty"`
	Ended *metav1.MicroTime `json:"ended,omitempty"`
	// Report is the name of the recording's report.
	Report  string `json:"report,omitempty"`
	Message string `json:"message,omitempty"`
}

// SessionList is a list of sessions.
type SessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Session `json:"items"`
	// SilentNodes did not answer: their sessions are missing.
	SilentNodes []string `json:"silentNodes,omitempty"`
	// TruncatedNodes have more sessions than the list contains per node.
	TruncatedNodes []string `json:"truncatedNodes,omitempty"`
	// Claims are the prepared claims with arm: OnDemand on the nodes of this page, whatever the selectors are; each claim is on one page.
	Claims []ArmedClaim `json:"claims,omitempty"`
}

// ArmedClaim is a claim whose ProfilerConfig has arm: OnDemand.
type ArmedClaim struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claimUID"`
	// Armed: processes that start are profiled.
	Armed bool `json:"armed"`
}

// SessionVerb is what a command does.
type SessionVerb string

// The verbs. Start, Stop and Cancel are for sessions; Arm and Disarm are for claims.
const (
	SessionStart  SessionVerb = "Start"
	SessionStop   SessionVerb = "Stop"
	SessionCancel SessionVerb = "Cancel"
	SessionArm    SessionVerb = "Arm"
	SessionDisarm SessionVerb = "Disarm"
)

// SessionCommand starts or ends recordings of sessions of its namespace. It is not stored: the answer to its creation contains its status.
type SessionCommand struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SessionCommandSpec   `json:"spec"`
	Status SessionCommandStatus `json:"status,omitzero"`
}

// SessionCommandSpec is the command. Exactly one of Sessions, Claims and Selection is set.
type SessionCommandSpec struct {
	// ID is a UUID of the client: the same id has the same answer.
	ID   string      `json:"id"`
	Verb SessionVerb `json:"verb"`
	// Sessions are names of sessions, Claims of ResourceClaims; both at most 1,000.
	Sessions  []string          `json:"sessions,omitempty"`
	Claims    []string          `json:"claims,omitempty"`
	Selection *SessionSelection `json:"selection,omitempty"`
	// At is the beginning of the window that the recordings cover: at most 10 minutes ahead, and only with a duration. Absent: now.
	At *metav1.MicroTime `json:"at,omitempty"`
	// Duration is the length of the window, at most 24h; absent: the duration in the claim's ProfilerConfig, or until a Stop. The policy of
	// the cluster may set a lower maximum.
	Duration *metav1.Duration `json:"duration,omitempty"`
	// SamplingFrequencyHz and Backtrace replace the settings of the claim's ProfilerConfig, if that samples CPUs.
	SamplingFrequencyHz *int32  `json:"samplingFrequencyHz,omitempty"`
	Backtrace           *string `json:"backtrace,omitempty"`
}

// SessionSelection selects sessions with selectors.
type SessionSelection struct {
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
}

// SessionCommandStatus is the answer.
type SessionCommandStatus struct {
	// Accepted is the number of sessions or claims for which the command is written, Names are the first 1,000 of them.
	Accepted int      `json:"accepted"`
	Names    []string `json:"names,omitempty"`
	// Refused are at most 1,000 sessions or claims for which it is not.
	Refused []RefusedSession `json:"refused,omitempty"`
	// SilentNodes did not answer: the command may be missing there.
	SilentNodes []string `json:"silentNodes,omitempty"`
	// Clocks are the nodes whose clock differs by more than 100 ms.
	Clocks []NodeClock `json:"clocks,omitempty"`
}

// RefusedSession is why the command does not apply to a session or claim.
type RefusedSession struct {
	Session string `json:"session"`
	Reason  string `json:"reason"`
}

// NodeClock is how far the clock of a node is ahead of the controller's.
type NodeClock struct {
	Node               string `json:"node"`
	OffsetMilliseconds int64  `json:"offsetMilliseconds"`
}
