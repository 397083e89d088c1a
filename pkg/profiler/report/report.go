// Package report contains the types of profiles: a report of a profiled process, as the node stores it in its index, as plugins return it
// to controllers, and as the aggregated API shows it. It is pure data.
package report

import (
	"cmp"
	"strings"
	"time"
)

// State is the progress of a report.
type State string

const (
	// Recording means that the process runs, or the tool writes its report.
	Recording State = "Recording"
	// Importing means that the tool's raw file is complete and is being imported.
	Importing State = "Importing"
	// Ready means that the report can be downloaded.
	Ready State = "Ready"
	// Raw means that the importer failed; the raw file can be downloaded, and imported by the same version of the tool.
	Raw State = "Raw"
	// Lost means that the recording ended without a readable file.
	Lost State = "Lost"
)

// Final reports whether a report stays in this state.
func (s State) Final() bool { return s == Ready || s == Raw || s == Lost }

// Report is one report of one process. Strings of the container (pod, container, process, file name) are escaped and bounded before they
// are added to the index.
type Report struct {
	// ID is unique on all nodes and a DNS label: the first 8 hex digits of the claim's UID, a dash, and the session's id.
	ID string `json:"id"`
	// UID is random and constant: a container may create a session of the same name again. Reports of earlier versions have no UID.
	UID string `json:"uid,omitempty"`
	// Namespace, Claim and ClaimUID name the ResourceClaim.
	Namespace string `json:"namespace"`
	// NamespaceUID is the UID of the namespace, which differs from the UID of a later namespace of its name. It is set in answers of
	// plugins; "" if unknown.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"`
	// Pod and Container are the names for the process; empty if the runtime named none.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Node      string `json:"node"`
	// Process is the base name of the program, PID its process id in the container.
	Process string `json:"process,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Tool is the version of the profiler.
	Tool string `json:"tool,omitempty"`
	// Started is the start of the process; Ended its exit, or the end of its recording if that was earlier.
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`

	State State `json:"state"`
	// Reason is why a report is Raw or Lost, or why the process ran unprofiled.
	Reason string `json:"reason,omitempty"`
	// Message explains the reason, in the words of the supervisor or of the importer.
	Message string `json:"message,omitempty"`
	// File is the file name for downloads; Path is the path in the container, for reports that stay there.
	File string `json:"file,omitempty"`
	Path string `json:"path,omitempty"`
	// Size is in bytes; SHA256 in hex. Both belong to the file that can be downloaded. If the file stays in its container, the container
	// reports the size, and there is no SHA256.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// Key orders the reports of a node. It is part of the tokens of lists.
func (r Report) Key() string { return r.ID + r.ClaimUID }

// Compare orders reports in the same way as their keys. It avoids building keys, because a list of a namespace with thousands of reports is
// sorted for each page.
func (r Report) Compare(other Report) int {
	if len(r.ID) == len(other.ID) {
		return cmp.Or(strings.Compare(r.ID, other.ID), strings.Compare(r.ClaimUID, other.ClaimUID))
	}
	return strings.Compare(r.Key(), other.Key())
}
