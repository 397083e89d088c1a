package reports

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/controller/commands"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// The names of commands in the API.
const (
	commandResource = "sessioncommands"
	commandKind     = "SessionCommand"
)

const (
	// maxCommand limits the body of a command: 1,000 names of sessions or claims.
	maxCommand = 256 << 10
	// bodyTime is the timeout to receive it: a slow client keeps a seat.
	bodyTime = 5 * time.Second
	// maxCommands limits the commands that are carried out at once, namespaceCommands the commands of one namespace. Users are not limited, since
	// a namespace may contain any number of ServiceAccounts.
	maxCommands, namespaceCommands = 8, 2
)

// commandSeats are the limits of commands.
var commandSeats = seats.Bounds{All: maxCommands, Namespace: namespaceCommands}

// create carries out a SessionCommand, and answers with its status. The command is not stored.
func (s *Server) create(w http.ResponseWriter, c call) error {
	namespace := c.PathValue("namespace")
	if err := s.allow(c, attributes("create", commandResource, namespace, "")); err != nil {
		return err
	}
	dryRun, err := createOptions(c.URL.Query())
	if err != nil {
		return err
	}
	by := seats.Party{Namespace: namespace}
	if !s.commands.Enter(commandSeats, by) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many concurrent commands: at most %d, and %d per namespace; try again later",
			maxCommands, namespaceCommands), 1)
	}
	defer s.commands.Leave(by)
	command, err := commandOf(w, c.Request, namespace)
	if err != nil {
		return err
	}
	now := s.Nodes.now()
	if invalid := commands.Validate(&command.Spec, now); len(invalid) > 0 {
		return invalidCommand(invalid)
	}
	uid, err := s.Nodes.namespaces.Current(c.Context(), namespace)
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case uid == "":
		return apierrors.NewNotFound(metav1.SchemeGroupVersion.WithResource("namespaces").GroupResource(), namespace)
	}
	command.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: metav1.NewTime(now)}
	if command.Status, err = s.Nodes.command(c.Context(), commands.ForNodes(&command.Spec, namespace, string(uid), dryRun), lineOf(by)); err != nil {
		return apierrors.NewInternalError(err)
	}
	answer(w, http.StatusCreated, command)
	return nil
}

// createOptions reads the options of a creation. Parameters without meaning for commands are refused: a misspelled dryRun would start
// recordings. Unknown fields are refused for any fieldValidation, for the same reason.
func createOptions(query url.Values) (dryRun bool, err error) {
	for name := range query {
		if !slices.Contains([]string{"dryRun", "fieldManager", "fieldValidation", "pretty", "timeout"}, name) {
			return false, apierrors.NewBadRequest(name + ": not supported")
		}
	}
	var o metav1.CreateOptions
	if err := decodeQuery(query, &o); err != nil {
		return false, err
	}
	if invalid := validation.ValidateCreateOptions(&o); len(invalid) > 0 {
		return false, invalidOptions("CreateOptions", invalid)
	}
	return len(o.DryRun) > 0, nil
}

// commandOf reads the command in the body of a request.
func commandOf(w http.ResponseWriter, r *http.Request, namespace string) (*v1alpha1.SessionCommand, error) {
	c := &v1alpha1.SessionCommand{}
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Now().Add(bodyTime))
	empty, err := decodeBody(w, r, "the command", maxCommand, c)
	_ = controller.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, err
	}
	if empty {
		return nil, apierrors.NewBadRequest("reading the command: the body is empty")
	}
	if c.Kind != "" && c.Kind != commandKind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("kind: supported values: %q; got %q", commandKind, c.Kind))
	}
	if version := GroupVersion.String(); c.APIVersion != "" && c.APIVersion != version {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("apiVersion: supported values: %q; got %q", version, c.APIVersion))
	}
	if c.Namespace != "" && c.Namespace != namespace {
		return nil, apierrors.NewBadRequest("the namespace of the command does not match the namespace of the request")
	}
	c.Namespace = ""
	if !equality.Semantic.DeepEqual(c.ObjectMeta, metav1.ObjectMeta{}) {
		const because = "only the namespace may be set, because commands are not stored"
		return nil, invalidCommand(field.ErrorList{field.Forbidden(field.NewPath("metadata"), because)})
	}
	c.Kind, c.APIVersion, c.Status = commandKind, GroupVersion.String(), v1alpha1.SessionCommandStatus{}
	return c, nil
}

func invalidCommand(because field.ErrorList) error {
	return apierrors.NewInvalid(GroupVersion.WithKind(commandKind).GroupKind(), "", because)
}
