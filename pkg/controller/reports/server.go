package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	authorizationapi "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// Reviewer decides whether a user may do something, usually an Access.
type Reviewer interface {
	Allowed(ctx context.Context, by user.Info, what authorizationapi.ResourceAttributes) (allowed bool, reason string, err error)
}

// Server answers the API. Each user is authenticated by Users and authorized by Access before a node is asked.
type Server struct {
	Nodes  *Nodes
	Users  authenticator.Request
	Access Reviewer
	// Left is called with the nodes that did not answer while a controller of the cluster, such as the namespace controller, listed the
	// reports of a namespace; nil is allowed.
	Left func(ctx context.Context, namespace string, nodes []string)
	// lists are the running lists.
	lists seats.Taken
	// downloads are the running downloads.
	downloads seats.Taken
	// commands are the commands that are being carried out.
	commands seats.Taken
	// calls are all requests of users.
	calls calls
}

// Path is the prefix of the paths of the API, including its discovery.
const Path = "/apis"

// Handler answers requests below Path.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	group := Path + "/" + GroupVersion.Group
	version := group + "/" + GroupVersion.Version
	mux.HandleFunc("GET "+Path+"/{$}", discovery(groups))
	mux.HandleFunc("GET "+Path, discovery(groups))
	mux.HandleFunc("GET "+group, discovery(oneGroup))
	mux.HandleFunc("GET "+version, discovery(resources))
	register[reportItem](s, mux, version)
	register[sessionItem](s, mux, version)
	mux.HandleFunc("DELETE "+version+"/namespaces/{namespace}/reports/{name}", s.user(s.delete))
	mux.HandleFunc("GET "+version+"/namespaces/{namespace}/reports/{name}/content", s.user(s.content))
	mux.HandleFunc("POST "+version+"/namespaces/{namespace}/"+commandResource, s.user(s.create))
	mux.HandleFunc(version+"/", func(w http.ResponseWriter, r *http.Request) {
		named := resourceIn(strings.TrimPrefix(r.URL.Path, version+"/"))
		refuse(w, apierrors.NewMethodNotSupported(resourceOf(named), strings.ToLower(r.Method)))
	})
	return mux
}

// register answers requests for the items of a type, below a path.
func register[T item](s *Server, mux *http.ServeMux, path string) {
	answers := func(handle func(s *Server, w http.ResponseWriter, c call) error) http.HandlerFunc {
		return s.user(func(w http.ResponseWriter, c call) error { return handle(s, w, c) })
	}
	all, namespaced := "/"+kindOf[T]().resource, "/namespaces/{namespace}/"+kindOf[T]().resource
	mux.HandleFunc("GET "+path+all, answers(listItems[T]))
	mux.HandleFunc("GET "+path+namespaced, answers(listItems[T]))
	mux.HandleFunc("GET "+path+namespaced+"/{name}", answers(getItem[T]))
}

// resourceIn returns the resource in a path below the version.
func resourceIn(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return parts[0]
}

// call is one request of a user.
type call struct {
	*http.Request
	by user.Info
	// leave lets the next request run; it may be called early.
	leave func()
}

// user authenticates the user of a request.
func (s *Server) user(handle func(w http.ResponseWriter, c call) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, known, err := s.Users.AuthenticateRequest(r)
		if err != nil || !known {
			refuse(w, apierrors.NewUnauthorized("the request does not come from the API server of the cluster"))
			return
		}
		c := call{Request: r, by: answer.User}
		c.leave, err = s.calls.enter(r.Context(), partyOf(c.by, r.PathValue("namespace")))
		if err != nil { // or the client disconnected
			refuse(w, apierrors.NewTooManyRequests(fmt.Sprintf("%v: at most %d per namespace and %d per user, waiting requests included; try again later",
				errCrowded, namespaceCalls, userCalls), 1))
			return
		}
		defer c.leave()
		if err := handle(w, c); err != nil {
			refuse(w, err)
		}
	}
}

// allow refuses requests that the user may not send.
func (s *Server) allow(c call, what authorizationapi.ResourceAttributes) error {
	allowed, reason, err := s.Access.Allowed(c.Context(), c.by, what)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if allowed {
		return nil
	}
	named := what.Resource
	if what.Subresource != "" {
		named += "/" + what.Subresource
	}
	where := "at the cluster scope"
	if what.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", what.Namespace)
	}
	cause := fmt.Errorf("user %q cannot %s resource %q in API group %q %s", c.by.GetName(), what.Verb, named, GroupVersion.Group, where)
	if reason != "" {
		cause = fmt.Errorf("%w: %s", cause, reason)
	}
	return apierrors.NewForbidden(resourceOf(what.Resource), what.Name, cause)
}

// findItem returns the item of that name. If it is not found, silent nodes may have it.
func findItem[T item](s *Server, c call) (T, error) {
	namespace, name := c.PathValue("namespace"), c.PathValue("name")
	one, found, silent, err := find[T](c.Context(), s.Nodes, namespace, name, partyOf(c.by, namespace))
	switch {
	case err != nil:
		return one, apierrors.NewInternalError(err)
	case found:
		return one, nil
	case len(silent) > 0:
		return one, apierrors.NewServiceUnavailable(fmt.Sprintf("%s %q was not found, and these nodes did not answer: %s", strings.ToLower(kindOf[T]().kind), name, names(silent)))
	}
	return one, apierrors.NewNotFound(resourceOf(kindOf[T]().resource), name)
}

// maxNames is the maximum number of silent nodes in a sentence.
const maxNames = 20

// names joins nodes for a sentence.
func names(nodes []string) string {
	if len(nodes) <= maxNames {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(nodes[:maxNames], ", "), len(nodes)-maxNames)
}

// getItem answers with the item of a name.
func getItem[T item](s *Server, w http.ResponseWriter, c call) error {
	if err := s.allow(c, attributes("get", kindOf[T]().resource, c.PathValue("namespace"), c.PathValue("name"))); err != nil {
		return err
	}
	if err := checkGet(c.URL.Query()); err != nil {
		return err
	}
	found, err := findItem[T](s, c)
	if err != nil {
		return err
	}
	return show(w, c.Request, found)
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if after, wait := apierrors.SuggestsClientDelay(err); wait {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	answer(w, int(body.Code), &body)
}

// answer writes JSON. It does not report a disconnected client.
func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
