package reports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/controller/commands"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// commandTimeout is the timeout of a node for a command: it writes a file for each session.
	commandTimeout = 5 * time.Second
	// commandTime is the maximum duration of a command: nodes that were not asked by then are silent.
	commandTime = 30 * time.Second
	// maxAccepted limits the bytes that are read of a node's answer: 1,024 sessions, of which all are refused.
	maxAccepted = 512 << 10
)

// command sends a command to each node whose sessions it may name, once, and returns its status.
func (n *Nodes) command(ctx context.Context, c session.Command, by line) (none v1alpha1.SessionCommandStatus, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return none, fmt.Errorf("encoding the command: %w", err)
	}
	endpoints, err := n.commanded(ctx, c)
	if err != nil {
		return none, err
	}
	limited, stop := context.WithTimeout(ctx, n.limits.commands)
	defer stop()
	status := commands.NewMerge(c)
	var asked sync.WaitGroup
	for _, e := range endpoints {
		give, err := n.slots.take(limited, by)
		if err != nil {
			status.Silent(e.Node)
			continue
		}
		asked.Go(func() {
			defer give()
			if err := n.commandNode(limited, e, body, status); err != nil {
				status.Silent(e.Node)
			}
		})
	}
	asked.Wait()
	return status.Status(names), ctx.Err()
}

// commanded returns the nodes for a command: the nodes of its sessions if a list contained all of them, else all.
func (n *Nodes) commanded(ctx context.Context, c session.Command) ([]Endpoint, error) {
	q := Query{}
	if c.Selection != nil {
		q.Node = c.Selection.Exact("spec.node")
	}
	all, err := n.open(ctx, &q)
	if err != nil || len(c.Sessions) == 0 {
		return all, err
	}
	of := map[string]bool{}
	for _, name := range c.Sessions {
		node := n.known.node(sessionKind.resource, c.Namespace, name)
		if node == "" {
			return all, nil
		}
		of[node] = true
	}
	return slices.DeleteFunc(all, func(e Endpoint) bool { return !of[e.Node] }), nil
}

// commandNode sends a command to a node, and adds its answer to the status. A node that does not answer in time is not asked again for
// quietTime, by any request.
func (n *Nodes) commandNode(ctx context.Context, e Endpoint, body []byte, status *commands.Merge) error {
	if e.Address == "" || n.quiet.has(e, n.now()) {
		return fmt.Errorf("node %s: %w", e.Node, errSilent)
	}
	limited, stop := context.WithTimeout(ctx, n.limits.command)
	defer stop()
	err := n.post(limited, e, body, status)
	if ctx.Err() == nil && timedOut(err) {
		n.quiet.put(e, n.now())
	}
	return err
}

func (n *Nodes) post(ctx context.Context, e Endpoint, body []byte, status *commands.Merge) error {
	of := commands.Exchange{Node: e.Node, Sent: n.now()}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { of.Sent = n.now() }}) // without the handshake
	response, err := n.do(ctx, http.MethodPost, e, nil, bytes.NewReader(body), http.Header{"Content-Type": {"application/json"}}, "v1", "commands")
	if err != nil {
		return err
	}
	of.Received = n.now()
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound: // a plugin of an earlier version has no sessions
		return nil
	default:
		return readError(response)
	}
	var accepted session.Accepted
	limited := &io.LimitedReader{R: response.Body, N: maxAccepted}
	if err := json.NewDecoder(limited).Decode(&accepted); err != nil {
		return errors.Join(fmt.Errorf("reading the response of node %s", e.Node), err)
	}
	_, _ = io.CopyN(io.Discard, limited, maxRest)
	status.Add(of, accepted)
	return nil
}
