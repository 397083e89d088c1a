package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// Options are applied, or refused by name. Only options without meaning for reports are ignored, because kubectl and the namespace
// controller send some of them. TestOptions contains a row for each.

// maxBody limits the options in the body of a request.
const maxBody = 16 << 10

// decodeQuery decodes the options in a query like API servers, which also ignore parameters that are not options.
func decodeQuery(query url.Values, into runtime.Object, integers ...string) error {
	for _, name := range integers {
		if text := query.Get(name); text != "" {
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return apierrors.NewBadRequest(fmt.Sprintf("%s: must be an integer, got %q", name, text))
			}
		}
	}
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest("reading the options of the request: " + err.Error())
	}
	return nil
}

// checkVersion refuses versions of former states: nodes do not store them, and the versions are unordered.
func checkVersion(version string) error {
	if version == "" || version == "0" {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf(`resourceVersion: supported values: "", "0"; got %q: former versions are not stored`, version))
}

// checkGet refuses unsupported options of a get.
func checkGet(query url.Values) error {
	var o metav1.GetOptions
	if err := decodeQuery(query, &o); err != nil {
		return err
	}
	return checkVersion(o.ResourceVersion)
}

// queryOf returns the query of a list request.
func queryOf(query url.Values, of *kind, namespace string) (*Query, error) {
	o, err := listOptions(query, of)
	if err != nil {
		return nil, err
	}
	selection := session.Selection{Labels: o.LabelSelector, Fields: o.FieldSelector}
	selects, err := selection.Compile()
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	q := &Query{Namespace: namespace, Limit: int(min(o.Limit, maxItems)), Node: selection.Exact("spec.node"), ID: selection.Exact("metadata.name")}
	switch q.After, err = decodePosition(o.Continue, of, namespace); {
	case errors.Is(err, errExpired):
		return nil, apierrors.NewResourceExpired("continue: " + err.Error() + "; list again from the beginning")
	case err != nil:
		return nil, apierrors.NewBadRequest("continue: " + err.Error())
	}
	if selection != (session.Selection{}) {
		q.Match = selects
	}
	return q, nil
}

// listOptions reads the options of a list, and refuses unsupported ones. The timeout may be longer than the list takes, and bookmarks only
// apply to watches.
func listOptions(query url.Values, of *kind) (*metav1.ListOptions, error) {
	o := &metav1.ListOptions{}
	if err := decodeQuery(query, o, "limit", "timeoutSeconds"); err != nil {
		return nil, err
	}
	if o.Watch {
		return nil, apierrors.NewMethodNotSupported(resourceOf(of.resource), "watch")
	}
	if o.Limit < 0 {
		return nil, apierrors.NewBadRequest("limit: must be an integer greater than or equal to 0")
	}
	if o.ShardSelector != "" {
		return nil, apierrors.NewBadRequest("shardSelector: not supported; use labelSelector or fieldSelector")
	}
	invalid := listvalidation.ValidateListOptions(&internalversion.ListOptions{
		ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch, Continue: o.Continue, SendInitialEvents: o.SendInitialEvents,
	}, false)
	if len(invalid) > 0 {
		return nil, invalidOptions("ListOptions", invalid)
	}
	return o, checkVersion(o.ResourceVersion)
}

// deletionOf reads the options of a deletion. If both the query and the body contain options, all of them apply: API servers read one of
// them.
func deletionOf(w http.ResponseWriter, r *http.Request) (d report.Deletion, err error) {
	var inQuery metav1.DeleteOptions
	query := r.URL.Query()
	for name := range query {
		if strings.HasPrefix(name, "preconditions") {
			return d, apierrors.NewBadRequest(name + ": not supported in the query; send it in the body")
		}
	}
	if err := decodeQuery(query, &inQuery, "gracePeriodSeconds"); err != nil {
		return d, err
	}
	inBody, err := deleteBody(w, r)
	if err != nil {
		return d, err
	}
	for _, o := range []*metav1.DeleteOptions{&inQuery, inBody} {
		invalid := validation.ValidateDeleteOptions(o)
		if ignore := o.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore && len(invalid) == 0 {
			invalid = append(invalid, field.Forbidden(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), "is not supported for reports"))
		}
		if len(invalid) > 0 {
			return d, invalidOptions("DeleteOptions", invalid)
		}
		d.DryRun = d.DryRun || slices.Contains(o.DryRun, metav1.DryRunAll)
	}
	if wanted := inBody.Preconditions; wanted != nil {
		if wanted.UID != nil {
			d.UID = string(*wanted.UID)
		}
		if wanted.ResourceVersion != nil {
			d.Version = *wanted.ResourceVersion
		}
	}
	return d, nil
}

// deleteBody reads the options in the body of a deletion.
func deleteBody(w http.ResponseWriter, r *http.Request) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if _, err := decodeBody(w, r, "the options of the deletion", maxBody, o); err != nil {
		return nil, err
	}
	if o.Kind != "" && o.Kind != "DeleteOptions" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("kind: supported values: %q; got %q", "DeleteOptions", o.Kind))
	}
	return o, nil
}

// decodeBody decodes the JSON object in the body of a request, if it contains any. It refuses unknown fields, because they could change the
// result.
func decodeBody(w http.ResponseWriter, r *http.Request, what string, limit int64, into any) (empty bool, err error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return false, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s must be at most %d bytes", what, limit))
		}
		return false, apierrors.NewBadRequest("reading " + what + ": " + err.Error())
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return true, nil
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != runtime.ContentTypeJSON {
			return false, failed(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type: supported values: %q; got %q", runtime.ContentTypeJSON, kind))
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(into)
	if err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("more than one object")
		}
	}
	if err != nil {
		return false, apierrors.NewBadRequest("reading " + what + ": " + err.Error())
	}
	return false, nil
}

// invalidOptions returns the error of options that validation refused.
func invalidOptions(kind string, because field.ErrorList) error {
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", because)
}
