package reports

import (
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// The names of the API.
const (
	resource = "reports"
	kind     = "Report"
	content  = "content"
)

// GroupVersion is the version of the API.
var GroupVersion = schema.GroupVersion{Group: "profiles.gpu.prism.dev", Version: "v1alpha1"}

var groupResource = schema.GroupResource{Group: GroupVersion.Group, Resource: resource}

// labelPrefix is the prefix of the keys of labels.
const labelPrefix = "gpu.prism.dev/"

// validID reports whether a report can be named in the API.
func validID(id string) bool { return len(validation.IsDNS1123Label(id)) == 0 }

// object converts a report to its form in the API. Its labels are the properties that are valid in a label.
func object(r report.Report) v1alpha1.Report {
	o := selectable(r)
	o.UID, o.ResourceVersion = types.UID(r.ObjectUID()), r.Version()
	return o
}

// selectable returns an object without fields that selectors cannot use and that are expensive.
func selectable(r report.Report) v1alpha1.Report {
	o := v1alpha1.Report{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: r.ID, Namespace: r.Namespace, CreationTimestamp: metav1.NewTime(r.Started), Labels: map[string]string{},
		},
		Spec: v1alpha1.ReportSpec{
			Claim: r.Claim, ClaimUID: r.ClaimUID, Pod: r.Pod, Container: r.Container, Node: r.Node, Process: r.Process, PID: r.PID, Tool: r.Tool,
		},
		Status: v1alpha1.ReportStatus{
			State: string(r.State), Reason: r.Reason, Message: r.Message, Started: metav1.NewTime(r.Started), File: r.File, Path: r.Path, Size: r.Size, SHA256: r.SHA256,
		},
	}
	if r.Ended != nil {
		o.Status.Ended = new(metav1.NewTime(*r.Ended))
	}
	for key, value := range map[string]string{"claim": r.Claim, "pod": r.Pod, "container": r.Container, "node": r.Node} {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			o.Labels[labelPrefix+key] = value
		}
	}
	return o
}

// fieldsOf returns the fields for field selectors.
func fieldsOf(o *v1alpha1.Report) fields.Set {
	return fields.Set{
		"metadata.name": o.Name, "metadata.namespace": o.Namespace, "spec.claim": o.Spec.Claim, "spec.claimUID": o.Spec.ClaimUID,
		"spec.pod": o.Spec.Pod, "spec.container": o.Spec.Container, "spec.node": o.Spec.Node, "spec.process": o.Spec.Process,
		"status.state": o.Status.State,
	}
}

// formatBytes formats a size as a quantity with few digits: "12Mi".
func formatBytes(bytes int64) string {
	const step = 1024
	unit := int64(1)
	for bytes/unit >= step {
		unit *= step
	}
	return quantity.NewQuantity((bytes+unit/2)/unit*unit, quantity.BinarySI).String()
}
