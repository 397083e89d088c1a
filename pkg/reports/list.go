package reports

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

func (s *Server) list(w http.ResponseWriter, c call) error {
	namespace, query := c.PathValue("namespace"), c.URL.Query()
	if err := s.allow(c, attributes("list", "", namespace, "")); err != nil {
		return err
	}
	if query.Get("watch") == "1" || query.Get("watch") == "true" {
		return apierrors.NewMethodNotSupported(groupResource, "watch")
	}
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	known := fieldsOf(&v1alpha1.Report{})
	for _, one := range byField.Requirements() {
		if !known.Has(one.Field) {
			return apierrors.NewBadRequest("fieldSelector: " + one.Field + " is not supported")
		}
	}
	node, _ := byField.RequiresExactMatch("spec.node")
	found, err := s.Nodes.List(c.Context(), namespace, node)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	list := &v1alpha1.ReportList{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind + "List"}, Items: []v1alpha1.Report{}, SilentNodes: found.Silent,
		TruncatedNodes: found.Truncated,
	}
	for _, r := range found.Reports {
		o := object(r)
		if byLabel.Matches(labels.Set(o.Labels)) && byField.Matches(fieldsOf(&o)) {
			list.Items = append(list.Items, o)
		}
	}
	if len(found.Silent) > 0 {
		w.Header().Add("Warning", `299 - "reports of these nodes are missing, which did not answer: `+names(found.Silent)+`"`)
	}
	if len(found.Truncated) > 0 {
		w.Header().Add("Warning", `299 - "these nodes have more reports than a list has of a node: `+names(found.Truncated)+`"`)
	}
	return showList(w, c.Request, list)
}

// The forms of objects that clients ask for.
const (
	asTable        = "Table"
	asMetadata     = "PartialObjectMetadata"
	asMetadataList = "PartialObjectMetadataList"
)

// show answers with an object in the form that the client asks for.
func show(w http.ResponseWriter, r *http.Request, o *v1alpha1.Report) error {
	switch form(r) {
	case asTable:
		answer(w, http.StatusOK, table([]v1alpha1.Report{*o}))
	case asMetadata:
		answer(w, http.StatusOK, metadata(o))
	default:
		answer(w, http.StatusOK, o)
	}
	return nil
}

func showList(w http.ResponseWriter, r *http.Request, list *v1alpha1.ReportList) error {
	switch form(r) {
	case asTable:
		answer(w, http.StatusOK, table(list.Items))
	case asMetadataList:
		all := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadataList}}
		for i := range list.Items {
			all.Items = append(all.Items, *metadata(&list.Items[i]))
		}
		answer(w, http.StatusOK, all)
	default:
		answer(w, http.StatusOK, list)
	}
	return nil
}

func metadata(o *v1alpha1.Report) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadata}, ObjectMeta: o.ObjectMeta,
	}
}

// columns are those of kubectl get.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the report."},
	{Name: "Claim", Type: "string", Description: "ResourceClaim of the process."},
	{Name: "Pod", Type: "string", Description: "Pod of the process."},
	{Name: "Container", Type: "string", Description: "Container of the process."},
	{Name: "Process", Type: "string", Description: "Program of the process."},
	{Name: "State", Type: "string", Description: "Recording, Importing, Ready, Raw or Lost."},
	{Name: "Reason", Type: "string", Description: "Why it is Raw or Lost, or the process not recorded."},
	{Name: "Size", Type: "string", Description: "Size of the file."},
	{Name: "Age", Type: "string", Description: "Time since the process began."},
	{Name: "Node", Type: "string", Priority: 1, Description: "Node that keeps the report."},
	{Name: "File", Type: "string", Priority: 1, Description: "Name of the file, or where it is in the container."},
}

func table(reports []v1alpha1.Report) *metav1.Table {
	t := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asTable},
		ColumnDefinitions: columns, Rows: []metav1.TableRow{},
	}
	for i := range reports {
		o := &reports[i]
		file := o.Status.File
		if o.Status.Path != "" {
			file = o.Status.Path
		}
		size := "<none>"
		if o.Status.Size > 0 {
			size = formatBytes(o.Status.Size)
		}
		t.Rows = append(t.Rows, metav1.TableRow{
			Cells: []any{
				o.Name, o.Spec.Claim, o.Spec.Pod, o.Spec.Container, o.Spec.Process, o.Status.State, o.Status.Reason, size,
				duration.HumanDuration(time.Since(o.CreationTimestamp.Time)), o.Spec.Node, file,
			},
			Object: runtime.RawExtension{Object: metadata(o)},
		})
	}
	return t
}
