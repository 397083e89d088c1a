// Package v1alpha1 has the types of the aggregated API profiles.gpu.prism.dev/v1alpha1: reports of profiled processes.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnouncementLabel has the name of the driver, on the Leases by which nodes announce that they keep reports.
const AnnouncementLabel = "profiles.gpu.prism.dev/driver"

// Report is one report of one process.
type Report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReportSpec   `json:"spec"`
	Status ReportStatus `json:"status"`
}

// ReportSpec is what was profiled.
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

// ReportStatus is where the report is.
type ReportStatus struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Message says more of the reason, in the words of the program that met it.
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
	// TruncatedNodes have more reports than the list has of a node.
	TruncatedNodes []string `json:"truncatedNodes,omitempty"`
}
