package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors that callers act on.
var (
	// ErrNotComplete: the process of the report is running, or the report is being imported.
	ErrNotComplete = errors.New("the report is not complete")
	// ErrChanged: the content differs from the requested content.
	ErrChanged = errors.New("the report changed")
	// ErrRetry: the same request may succeed later.
	ErrRetry = errors.New("no answer")
)

// act is the subject of a request. Its noun is "report" if it is "".
type act struct{ verb, noun, namespace, name string }

// resource returns the resource of the API.
func (a act) resource() string {
	if a.noun != "" {
		return sessions
	}
	return Resource
}

// doing returns the beginning of an error.
func (a act) doing() string {
	verb := map[string]string{
		"list": "listing", "get": "reading", "delete": "deleting", "download": "downloading",
		"start": "starting", "stop": "stopping", "cancel": "cancelling", "arm": "arming", "disarm": "disarming",
	}[a.verb]
	where := "in all namespaces"
	if a.namespace != "" {
		where = "in namespace " + a.namespace
	}
	if a.name == "" {
		return fmt.Sprintf("%s %ss %s", verb, cmp.Or(a.noun, "report"), where)
	}
	return fmt.Sprintf("%s %s %s %s", verb, cmp.Or(a.noun, "report"), a.name, where)
}

// roles returns the roles that allow a request.
func (a act) roles() string {
	if a.noun != "" {
		return "view, which lists sessions, or edit, which starts and ends recordings"
	}
	return "view, which lists reports, or edit, which downloads and deletes them"
}

// explained is an error message for the user; errors.Is finds its causes.
type explained struct {
	sentence string
	causes   []error
}

func (e *explained) Error() string   { return e.sentence }
func (e *explained) Unwrap() []error { return e.causes }

// explain returns an error that states the failure, its cause and a remedy.
func (c *Client) explain(err error, a act) error {
	say := func(cause error, format string, values ...any) error {
		return &explained{sentence: a.doing() + ": " + fmt.Sprintf(format, values...), causes: []error{cause, err}}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return say(err, "interrupted")
	case apierrors.IsForbidden(err):
		return say(err, "the API server denied access: %s; an administrator can bind ClusterRole %s, in the namespace", message(err), a.roles())
	case apierrors.IsUnauthorized(err):
		return say(err, "the API server does not accept the credentials of the kubeconfig; log in again")
	case apierrors.IsNotFound(err), a.noun != "" && apierrors.IsMethodNotSupported(err):
		return say(err, "%s", a.absent(err))
	case apierrors.IsConflict(err):
		return say(ErrNotComplete, "%s", message(err))
	case apierrors.IsServiceUnavailable(err) && notServed(err):
		return say(ErrRetry, "prism-controller, which serves %s, does not answer; profiling continues without it; kubectl get apiservice "+
			"%s.%s shows the reason", a.resource(), GroupVersion.Version, GroupVersion.Group)
	case again(err):
		return say(ErrRetry, "%s", message(err))
	case unreachable(err):
		return say(ErrRetry, "the API server %s does not answer: %v", c.host, err)
	}
	return say(err, "%s", message(err))
}

// absent explains that the cluster does not have the object, its resource, or the whole API. An older controller answers requests for
// sessions with MethodNotAllowed.
func (a act) absent(err error) string {
	switch {
	case notServed(err), a.noun == "" && a.name == "":
		return fmt.Sprintf("the cluster does not serve %s (API group %s): the chart of Prism is not installed, or installed without "+
			"profiler.tools; an administrator can set it", a.resource(), GroupVersion.Group)
	case a.noun != "":
		return "the controller of this cluster is of a version without sessions; an administrator can upgrade the chart of Prism"
	}
	return "the report does not exist; kubectl prism profile list prints the existing ones"
}

// notServed reports whether the response is not from the API itself: its errors do not contain the cause "unexpected server response".
func notServed(err error) bool {
	status, ok := statusOf(err)
	return ok && status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}

// again reports whether the server requests another try.
func again(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// unreachable reports whether there was no response at all.
func unreachable(err error) bool {
	_, network := errors.AsType[net.Error](err)
	_, request := errors.AsType[*url.Error](err)
	return network || request
}

// message returns the message of the server.
func message(err error) string {
	if status, ok := statusOf(err); ok && status.Message != "" {
		return Escape(status.Message)
	}
	return Escape(err.Error())
}

// statusOf returns the server's status in an error.
func statusOf(err error) (metav1.Status, bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return metav1.Status{}, false
	}
	return answer.Status(), true
}

// Nodes joins names of nodes for a sentence; of many names only the first.
func Nodes(names []string) string {
	const shown = 10
	word := "nodes "
	if len(names) == 1 {
		word = "node "
	}
	if len(names) > shown {
		return fmt.Sprintf("%s%s and %d more", word, strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return word + strings.Join(names, ", ")
}
