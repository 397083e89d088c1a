package reports

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeTimeout is the timeout of a response with a list: a slow client does not block the lists of others for longer.
const writeTimeout = 30 * time.Second

// listItems answers with a page of a list. Items are converted while they are written, so that the list is in memory only once.
func listItems[T item](s *Server, w http.ResponseWriter, c call) error {
	namespace, of := c.PathValue("namespace"), kindOf[T]()
	if err := s.allow(c, attributes("list", of.resource, namespace, "")); err != nil {
		return err
	}
	query, err := queryOf(c.URL.Query(), of, namespace)
	if err != nil {
		return err
	}
	by := partyOf(c.by, namespace)
	if !s.lists.Enter(listSeats, by) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many concurrent lists: at most %d, %d per namespace and %d per user; try again later",
			listSeats.All, listSeats.Namespace, listSeats.User), 1)
	}
	defer s.lists.Leave(by)
	query.line = lineOf(by)
	found, err := list[T](c.Context(), s.Nodes, *query)
	switch {
	case errors.Is(err, errSlow):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	page := &listing{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: of.kind + "List"}, Items: []struct{}{}, SilentNodes: found.Silent,
		TruncatedNodes: found.Truncated, Claims: found.Claims,
	}
	if found.Next != nil {
		if page.Continue, err = found.Next.encode(of, namespace); err != nil {
			return apierrors.NewInternalError(err)
		}
		if query.Limit == 0 { // a client that requests pages requests the next one
			page.TruncatedNodes = slices.Compact(slices.Sorted(slices.Values(slices.Concat(found.Truncated, found.Rest))))
			w.Header().Add("Warning", fmt.Sprintf(`299 - "the list is incomplete: these nodes %s more %s; set limit, and pass continue to list them: %s"`,
				of.verb, of.resource, names(found.Rest)))
		}
	}
	if len(found.Silent) > 0 {
		if by.System && namespace != "" && s.Left != nil && of == reportKind {
			s.Left(c.Context(), namespace, found.Silent)
		}
		w.Header().Add("Warning", `299 - "the list is incomplete: these nodes did not answer: `+names(found.Silent)+`"`)
	}
	if len(found.Truncated) > 0 {
		w.Header().Add("Warning", fmt.Sprintf(`299 - "these nodes %s more %s than a list contains per node: %s"`,
			of.verb, of.resource, names(found.Truncated)))
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	return showList(w, c.Request, page, found.Items)
}
