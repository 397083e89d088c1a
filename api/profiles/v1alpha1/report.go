// Package v1alpha1 contains the types of the aggregated API profiles.gpu.prism.dev/v1alpha1: reports of profiled processes, and sessions, which
// wait until a command records them.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnouncementLabel is the label with the driver's name on the Leases by which nodes announce that they store reports.
const AnnouncementLabel = "profiles.gpu.prism.dev/driver"

// Report is one report of one process.
type Report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReportSpec   `json:"spec"`
	Status ReportStatus `json:"status"`
}

// ReportSpec identifies the profiled process.
type ReportSpec struct {
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claimUID"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Node      string `json:"node"`
	Process   string `json:"process,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Tool      string `json:"tool,omitempty"`
}

// ReportStatus is the state of the report and the location of its file.
type ReportStatus struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Message explains the reason, in the words of the program that detected it.
	Message string       `json:"message,omitempty"`
	Started metav1.Time  `json:"started"`
	Ended   *metav1.Time `json:"ended,omitempty"`
	File    string       `json:"file,omitempty"`
	Path    string       `json:"path,omitempty"`
	Size    int64        `json:"size,omitempty"`
	SHA256  string       `json:"sha256,omitempty"`
}

// ReportList is a list of reports.
type ReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Report `json:"items"`
	// SilentNodes did not answer: their reports are missing.
	SilentNodes []string `json:"silentNodes,omitempty"`
	// TruncatedNodes store more reports than the list contains per node.
	TruncatedNodes []string `json:"truncatedNodes,omitempty"`
}
