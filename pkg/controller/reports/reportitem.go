package reports

import (
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// reportItem is a report.
type reportItem struct{ report.Report }

var reportKind = &kind{
	resource: resource, kind: "Report", verb: "store", columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the report."},
		{Name: "Claim", Type: "string", Description: "ResourceClaim of the process."},
		{Name: "Pod", Type: "string", Description: "Pod of the process."},
		{Name: "Container", Type: "string", Description: "Container of the process."},
		{Name: "Process", Type: "string", Description: "Program of the process."},
		{Name: "State", Type: "string", Description: "Recording, Importing, Ready, Raw or Lost."},
		{Name: "Reason", Type: "string", Description: "Why the report is Raw or Lost, or why the process was not recorded."},
		{Name: "Size", Type: "string", Description: "Size of the file."},
		{Name: "Age", Type: "string", Description: "Time since the process began."},
		{Name: "Node", Type: "string", Priority: 1, Description: "Node that stores the report."},
		{Name: "File", Type: "string", Priority: 1, Description: "Name of the file, or its path in the container."},
	},
}

func (reportItem) kind() *kind { return reportKind }

// process returns the state of the report as the state: selectors of both kinds have the same fields.
func (r reportItem) process() session.Session {
	return session.Session{
		ID: r.ID, Namespace: r.Namespace, NamespaceUID: r.NamespaceUID, Claim: r.Claim, ClaimUID: r.ClaimUID, Pod: r.Pod, Container: r.Container, Node: r.Node,
		Process: r.Process, State: session.State(r.State),
	}
}

func (r reportItem) cost() int {
	const fields = 512
	return fields + len(r.ID) + len(r.UID) + len(r.Namespace) + len(r.NamespaceUID) + len(r.Claim) + len(r.ClaimUID) + len(r.Pod) + len(r.Container) + len(r.Node) + len(r.Process) +
		len(r.Tool) + len(r.Reason) + len(r.Message) + len(r.File) + len(r.Path) + len(r.SHA256)
}

// object returns a Report. Its labels are the properties that are valid in a label.
func (r reportItem) object() metav1.ObjectMetaAccessor {
	o := &v1alpha1.Report{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: reportKind.kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: r.ID, Namespace: r.Namespace, UID: types.UID(r.ObjectUID()), ResourceVersion: r.Version(), CreationTimestamp: metav1.NewTime(r.Started),
			Labels: r.process().Labels(),
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
	return o
}

func (r reportItem) cells() []any {
	file, size := r.File, "<none>"
	if r.Path != "" {
		file = r.Path
	}
	if r.Size > 0 {
		size = formatBytes(r.Size)
	}
	return []any{r.ID, r.Claim, r.Pod, r.Container, r.Process, r.State, r.Reason, size, duration.HumanDuration(time.Since(r.Started)), r.Node, file}
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
