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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
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
func show[T item](w http.ResponseWriter, r *http.Request, one T) error {
	switch form(r) {
	case asTable:
		t := table(one.kind())
		t.Rows = append(t.Rows, row(one))
		answer(w, http.StatusOK, t)
	case asMetadata:
		answer(w, http.StatusOK, metadata(one))
	default:
		answer(w, http.StatusOK, one.object())
	}
	return nil
}

// listing is a list whose items are written later.
type listing struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []struct{}            `json:"items"`
	SilentNodes     []string              `json:"silentNodes,omitempty"`
	TruncatedNodes  []string              `json:"truncatedNodes,omitempty"`
	Claims          []v1alpha1.ArmedClaim `json:"claims,omitempty"`
}

func showList[T item](w http.ResponseWriter, r *http.Request, l *listing, items []T) error {
	switch form(r) {
	case asTable:
		t := table(kindOf[T]())
		t.ListMeta = l.ListMeta
		return stream(w, t, "rows", items, func(one T) any { return row(one) })
	case asMetadataList:
		all := &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadataList}, ListMeta: l.ListMeta,
			Items: []metav1.PartialObjectMetadata{},
		}
		return stream(w, all, "items", items, func(one T) any { return metadata(one) })
	default:
		return stream(w, l, "items", items, func(one T) any { return one.object() })
	}
}

// stream answers with a list whose field is still empty, and writes the form of each item into it.
func stream[T item](w http.ResponseWriter, list any, field string, items []T, of func(T) any) error {
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
	for i, item := range items {
		one, err := json.Marshal(of(item))
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

func metadata[T item](of T) *metav1.PartialObjectMetadata {
	all := meta.AsPartialObjectMetadata(of.object().GetObjectMeta())
	all.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asMetadata}
	return all
}

func table(of *kind) *metav1.Table {
	return &metav1.Table{
		TypeMeta:          metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: asTable},
		ColumnDefinitions: of.columns, Rows: []metav1.TableRow{},
	}
}

func row[T item](of T) metav1.TableRow {
	return metav1.TableRow{Cells: of.cells(), Object: runtime.RawExtension{Object: metadata(of)}}
}
