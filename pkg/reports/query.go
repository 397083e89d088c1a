package reports

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Query is what a list is of.
type Query struct {
	// Namespace, Node and ID are "" for all.
	Namespace, Node, ID string
	// line is what the request waits in until nodes are asked.
	line line
	// namespaceUID is that of the namespace with that name now.
	namespaceUID types.UID
	// After is where the list begins: reports are in the order of their nodes' names and then of their keys.
	After Position
	// Limit is how many reports it has at most; 0 is maxItems. It may have fewer, and others after them.
	Limit int
	// Match leaves out the reports of which it says no; nil leaves out none.
	Match func(report.Report) bool
}

// has says whether a node may answer with the report. What it says of others is left out.
func (q *Query) has(r report.Report, node string) bool {
	return r.Node == node && r.Namespace != "" && (q.Namespace == "" || r.Namespace == q.Namespace) && (q.ID == "" || r.ID == q.ID) &&
		(q.Match == nil || q.Match(r))
}

// Position is between two reports: behind those of nodes before Node, and behind those of Node up to the one with the key After.
type Position struct {
	Node  string `json:"node"`
	After string `json:"after,omitempty"`
	// Read is how many reports of Node are before it: no more than maxReports of a node are listed.
	Read int `json:"read,omitempty"`
}

// Found is a list, or a part of one.
type Found struct {
	Reports []report.Report
	// Silent are the nodes that did not answer, Truncated those that have more reports than are listed of a node; both in order.
	Silent, Truncated []string
	// Next is where the rest begins; nil: there is none. Rest are the nodes that have it, as far as they have one.
	Next *Position
	Rest []string
}

// token is a Position as clients have it. They may only send it back, but may send anything.
type token struct {
	Version int `json:"v"`
	// Namespace is that of the list.
	Namespace string `json:"namespace"`
	Position
}

const (
	tokenVersion = 1
	maxToken     = 1 << 10
)

// keyPattern is what keys of reports consist of.
var keyPattern = regexp.MustCompile(`^[0-9a-z-]{0,126}$`)

var (
	errToken = errors.New("not a token of this list")
	// errExpired is why a list has to begin again.
	errExpired = errors.New("a token of another version of the controller")
)

// encode makes the token of a position in the list of a namespace.
func (p Position) encode(namespace string) (string, error) {
	raw, err := json.Marshal(token{tokenVersion, namespace, p})
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// decodePosition reads a token: errExpired if it is of another version, errToken if it is none of this namespace's list.
func decodePosition(text, namespace string) (Position, error) {
	if text == "" {
		return Position{}, nil
	}
	if len(text) > maxToken {
		return Position{}, errToken
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Position{}, errToken
	}
	var version struct {
		Version int `json:"v"`
	}
	if json.Unmarshal(raw, &version) != nil {
		return Position{}, errToken
	}
	if version.Version > tokenVersion {
		return Position{}, errExpired
	}
	var t token
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&t) != nil || t.Version != tokenVersion || t.Namespace != namespace || len(validation.IsDNS1123Subdomain(t.Node)) > 0 ||
		!keyPattern.MatchString(t.After) || t.Read < 0 || t.Read > maxReports {
		return Position{}, errToken
	}
	return t.Position, nil
}

// key orders the reports of a node; "" of one that no node can have.
func key(r report.Report) string {
	if !validID(r.ID) || !validID(r.ClaimUID) {
		return ""
	}
	return r.Key()
}

// cost is about how much memory a report takes.
func cost(r report.Report) int {
	const fields = 512
	return fields + len(r.ID) + len(r.UID) + len(r.Namespace) + len(r.NamespaceUID) + len(r.Claim) + len(r.ClaimUID) + len(r.Pod) + len(r.Container) + len(r.Node) + len(r.Process) +
		len(r.Tool) + len(r.Reason) + len(r.Message) + len(r.File) + len(r.Path) + len(r.SHA256)
}

// items is how many reports the list has at most.
func (q *Query) items() int { return min(cmp.Or(q.Limit, maxItems), maxItems) }
