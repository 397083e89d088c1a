package reports

import (
	"context"
	"errors"
	"io/fs"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// delete removes a report from its node, or answers a dry run.
func (s *Server) delete(w http.ResponseWriter, c call) error {
	name := c.PathValue("name")
	if err := s.allow(c, attributes("delete", resource, c.PathValue("namespace"), name)); err != nil {
		return err
	}
	wanted, err := deletionOf(w, c.Request)
	if err != nil {
		return err
	}
	one, err := findItem[reportItem](s, c)
	if err != nil {
		return err
	}
	found := one.Report
	// Plugins of earlier versions do not know preconditions; others check them again while nothing else changes the report.
	if err := wanted.Check(found); err != nil {
		return apierrors.NewConflict(groupResource, name, err)
	}
	if wanted.DryRun && !found.State.Final() && found.State != report.Importing {
		return apierrors.NewConflict(groupResource, name, errors.New("the report is still being recorded; delete it after its process has exited"))
	}
	if err := s.deleteOnNode(c.Context(), found, wanted); err != nil {
		return err
	}
	answer(w, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: name, Group: GroupVersion.Group, Kind: resource, UID: types.UID(found.ObjectUID())},
	})
	return nil
}

// deleteOnNode asks the node of a report to delete it, or in a dry run whether it could be deleted.
func (s *Server) deleteOnNode(ctx context.Context, found report.Report, wanted report.Deletion) error {
	ctx, stop := context.WithTimeout(ctx, nodeTimeout)
	defer stop()
	method, done := http.MethodDelete, http.StatusNoContent
	if wanted.DryRun {
		method, done = http.MethodGet, http.StatusOK
	}
	response, err := s.Nodes.ask(ctx, method, found, wanted.Query(), nil)
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == done {
		if !wanted.DryRun {
			s.Nodes.known.remove(found)
		}
		return nil
	}
	switch err := readError(response); {
	case errors.Is(err, fs.ErrNotExist):
		return apierrors.NewNotFound(groupResource, found.ID)
	case response.StatusCode == http.StatusConflict:
		return apierrors.NewConflict(groupResource, found.ID, err)
	default:
		return apierrors.NewInternalError(err)
	}
}
