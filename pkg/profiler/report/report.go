// Package report holds the nouns of profiles: a report of a profiled process, as the node keeps it in its index, as plugins answer it to
// controllers, and as the aggregated API shows it. It is pure data.
package report

import (
	"cmp"
	"strings"
	"time"
)

// State is where a report is between process and user.
type State string

const (
	// Recording says that the process runs, or the tool writes its report.
	Recording State = "Recording"
	// Importing says that the tool's raw file is complete and is being imported.
	Importing State = "Importing"
	// Ready says that the report can be downloaded.
	Ready State = "Ready"
	// Raw says that the importer failed; the raw file can be downloaded, and imported by the same version of the tool.
	Raw State = "Raw"
	// Lost says that the recording ended without a file that can be read.
	Lost State = "Lost"
)

// Final says whether a report stays in this state.
func (s State) Final() bool { return s == Ready || s == Raw || s == Lost }

// Report is one report of one process. Strings of the container (pod, container, process, file name) are escaped and bounded before they
// reach the index.
type Report struct {
	// ID is unique on all nodes and a DNS label: the first 8 hex digits of the claim's UID, a dash, and the session's.
	ID string `json:"id"`
	// UID is random and stays: a container may make a session of the same name again. Reports of earlier versions have none.
	UID string `json:"uid,omitempty"`
	// Namespace, Claim and ClaimUID name the ResourceClaim.
	Namespace string `json:"namespace"`
	// NamespaceUID is that of the namespace: a later one of its name has another. It is set in answers of plugins; "" where it is not known.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"`
	// Pod and Container are those of the process; empty where the runtime named none.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Node      string `json:"node"`
	// Process is the base name of the program, PID its process id in the container.
	Process string `json:"process,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Tool is the version of the profiler.
	Tool string `json:"tool,omitempty"`
	// Started is when the process was; Ended when it exited, or when its recording ended before that.
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`

	State State `json:"state"`
	// Reason says why a report is Raw or Lost, or why the process ran without the profiler.
	Reason string `json:"reason,omitempty"`
	// Message says more of that, in the words of the supervisor or of the importer.
	Message string `json:"message,omitempty"`
	// File is the name that the report is downloaded under; Path where it is in the container, for reports that stay there.
	File string `json:"file,omitempty"`
	Path string `json:"path,omitempty"`
	// Size is in bytes; SHA256 in hex. Both are those of the file that can be downloaded; of one that stays in its container the size is what the
	// container says, and there is no SHA256.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// Key orders the reports of a node. It is in the tokens of lists.
func (r Report) Key() string { return r.ID + r.ClaimUID }

// Compare orders reports as their keys do. It makes no keys where it can: a list of a namespace with thousands of reports is sorted for each page.
func (r Report) Compare(other Report) int {
	if len(r.ID) == len(other.ID) {
		return cmp.Or(strings.Compare(r.ID, other.ID), strings.Compare(r.ClaimUID, other.ClaimUID))
	}
	return strings.Compare(r.Key(), other.Key())
}
