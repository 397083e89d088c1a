package reports

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// writeBuffer is the number of bytes of a list that are written at once.
const writeBuffer = 32 << 10

// The forms of objects that clients request.
const (
	asTable        = "Table"
	asMetadata     = "PartialObjectMetadata"
	asMetadataList = "PartialObjectMetadataList"
)

// form returns the client's preferred form of objects among the supported ones: JSON only.
func form(r *http.Request) string {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, options, err := mime.ParseMediaType(accepted)
		if err != nil || (kind != "application/json" && kind != "*/*" && kind != "application/*") {
			continue
		}
		// Older forms use version v1beta1.
		if options["g"] == "meta.k8s.io" && options["v"] != "v1" {
			continue
		}
		return options["as"]
	}
	return ""
}

// show answers with an object in the form that the client requests.
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

func showList(w http.ResponseWriter, r *http.Request, list *v1alpha1.ReportList, reports []report.Report) error {
	switch form(r) {
	case asTable:
		t := table(nil)
		t.ListMeta = list.ListMeta
		return stream(w, t, "rows", reports, func(o *v1alpha1.Report) any { return row(o) })
	case asMetadataList:
		all := &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadataList}, ListMeta: list.ListMeta,
			Items: []metav1.PartialObjectMetadata{},
		}
		return stream(w, all, "items", reports, func(o *v1alpha1.Report) any { return metadata(o) })
	default:
		return stream(w, list, "items", reports, func(o *v1alpha1.Report) any { return o })
	}
}

// stream answers with a list whose field is still empty, and writes an item for each report into it.
func stream(w http.ResponseWriter, list any, field string, reports []report.Report, item func(*v1alpha1.Report) any) error {
	raw, err := json.Marshal(list)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	begin, end, found := bytes.Cut(raw, []byte(`"`+field+`":[]`)) // only texts of this package, and a token, precede it
	if !found {
		return apierrors.NewInternalError(fmt.Errorf("writing a list: no empty field %s", field))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, writeBuffer)
	defer func() { _ = out.Flush() }()
	_, _ = fmt.Fprintf(out, `%s"%s":[`, begin, field)
	for i, r := range reports {
		o := object(r)
		one, err := json.Marshal(item(&o))
		if i > 0 {
			err = errors.Join(err, out.WriteByte(','))
		}
		if _, wrong := out.Write(one); err != nil || wrong != nil {
			return nil //nolint:nilerr // the client disconnected, and the response has started
		}
	}
	_, _ = fmt.Fprintf(out, "]%s\n", end)
	return nil
}

func metadata(o *v1alpha1.Report) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadata}, ObjectMeta: o.ObjectMeta,
	}
}

// columns are the columns of kubectl get.
var columns = []metav1.TableColumnDefinition{
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
}

func table(reports []v1alpha1.Report) *metav1.Table {
	t := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asTable},
		ColumnDefinitions: columns, Rows: []metav1.TableRow{},
	}
	for i := range reports {
		t.Rows = append(t.Rows, row(&reports[i]))
	}
	return t
}

func row(o *v1alpha1.Report) metav1.TableRow {
	file := o.Status.File
	if o.Status.Path != "" {
		file = o.Status.Path
	}
	size := "<none>"
	if o.Status.Size > 0 {
		size = formatBytes(o.Status.Size)
	}
	return metav1.TableRow{
		Cells: []any{
			o.Name, o.Spec.Claim, o.Spec.Pod, o.Spec.Container, o.Spec.Process, o.Status.State, o.Status.Reason, size,
			duration.HumanDuration(time.Since(o.CreationTimestamp.Time)), o.Spec.Node, file,
		},
		Object: runtime.RawExtension{Object: metadata(o)},
	}
}
