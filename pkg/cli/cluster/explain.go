package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// Explain returns an error that states the failed request, its cause and a remedy. right is the permission that the request requires, such
// as "patch on nodes".
func Explain(doing, right string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return &explained{doing + ": interrupted", err}
	case apierrors.IsForbidden(err):
		return &explained{fmt.Sprintf("%s: the API server denied access: %s; an administrator can allow %s", doing, message(err), right), err}
	case apierrors.IsUnauthorized(err):
		return &explained{doing + ": the API server does not accept the credentials of the kubeconfig; log in again", err}
	}
	return &explained{doing + ": " + message(err), err}
}

// explained is an error message for the user; errors.Is finds its cause.
type explained struct {
	sentence string
	cause    error
}

func (e *explained) Error() string { return e.sentence }
func (e *explained) Unwrap() error { return e.cause }

// message returns the message of the server.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return reports.Escape(status.Status().Message)
	}
	return reports.Escape(err.Error())
}
