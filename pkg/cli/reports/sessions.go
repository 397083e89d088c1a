package reports

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// SessionKind is the kind of a session.
const SessionKind = "Session"

// ListSessions returns the sessions of a namespace, or of all namespaces for "", in the order of the server.
func (c *Client) ListSessions(ctx context.Context, namespace string, s Selection) (*v1alpha1.SessionList, error) {
	all, err := list[v1alpha1.Session](ctx, c, act{verb: "list", noun: "session", namespace: namespace}, s)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.SessionList{Items: all.Items, SilentNodes: all.SilentNodes, TruncatedNodes: all.TruncatedNodes, Claims: all.Claims}
	list.APIVersion, list.Kind = GroupVersion.String(), SessionKind+"List"
	for i := range list.Items {
		list.Items[i].APIVersion, list.Items[i].Kind = GroupVersion.String(), SessionKind
	}
	return list, nil
}

func compareClaims(a, b v1alpha1.ArmedClaim) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.ClaimUID, b.ClaimUID))
}

// Command sends a command for sessions or claims of a namespace. The same id has the same answer, so it can be sent again after ErrRetry.
func (c *Client) Command(ctx context.Context, namespace string, spec v1alpha1.SessionCommandSpec, dryRun bool) (*v1alpha1.SessionCommandStatus, error) {
	a := act{verb: strings.ToLower(string(spec.Verb)), noun: "session", namespace: namespace}
	if len(spec.Claims) > 0 {
		a.noun = "claim"
	}
	command := &v1alpha1.SessionCommand{Spec: spec}
	command.APIVersion, command.Kind = GroupVersion.String(), "SessionCommand"
	body, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	request := c.rest.Post().Namespace(namespace).Resource("sessioncommands").SetHeader("Content-Type", "application/json").Body(body)
	if dryRun {
		request = request.Param("dryRun", "All")
	}
	answer := &v1alpha1.SessionCommand{}
	if err := decode(request.Do(ctx), answer); err != nil {
		return nil, c.explain(err, a)
	}
	return &answer.Status, nil
}

// Now returns the time of the server, from the header Date of its last response; before the first response it is the time of this machine.
func (c *Client) Now() time.Time { return c.clock.Now() }
