package reports

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// writeTimeout is the timeout of a response with a list: a slow client does not block the lists of others for longer.
const writeTimeout = 30 * time.Second

// list answers with a page of a list. Reports are converted while they are written, so that the list is in memory only once.
func (s *Server) list(w http.ResponseWriter, c call) error {
	namespace := c.PathValue("namespace")
	if err := s.allow(c, attributes("list", "", namespace, "")); err != nil {
		return err
	}
	query, err := queryOf(c.URL.Query(), namespace)
	if err != nil {
		return err
	}
	by := partyOf(c.by, namespace)
	if !s.lists.Enter(listSeats, by) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many concurrent lists of reports: at most %d, %d per namespace and %d per user; try again later",
			listSeats.All, listSeats.Namespace, listSeats.User), 1)
	}
	defer s.lists.Leave(by)
	query.line = lineOf(by)
	found, err := s.Nodes.List(c.Context(), *query)
	switch {
	case errors.Is(err, errSlow):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	list := &v1alpha1.ReportList{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: kind + "List"}, Items: []v1alpha1.Report{}, SilentNodes: found.Silent,
		TruncatedNodes: found.Truncated,
	}
	if found.Next != nil {
		if list.Continue, err = found.Next.encode(namespace); err != nil {
			return apierrors.NewInternalError(err)
		}
		if query.Limit == 0 { // a client that requests pages requests the next one
			list.TruncatedNodes = slices.Compact(slices.Sorted(slices.Values(slices.Concat(found.Truncated, found.Rest))))
			w.Header().Add("Warning", `299 - "the list is incomplete: these nodes store more reports; set limit, and pass continue to list them: `+names(found.Rest)+`"`)
		}
	}
	if len(found.Silent) > 0 {
		if by.System && namespace != "" && s.Left != nil {
			s.Left(c.Context(), namespace, found.Silent)
		}
		w.Header().Add("Warning", `299 - "the list is incomplete: these nodes did not answer: `+names(found.Silent)+`"`)
	}
	if len(found.Truncated) > 0 {
		w.Header().Add("Warning", `299 - "these nodes store more reports than a list contains per node: `+names(found.Truncated)+`"`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	return showList(w, c.Request, list, found.Reports)
}
