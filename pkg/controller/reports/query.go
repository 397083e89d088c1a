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

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// Query selects the items of a list.
type Query struct {
	// Namespace, Node and ID are "" for all.
	Namespace, Node, ID string
	// line is the queue of the request until nodes are asked.
	line line
	// namespaceUID is the UID of the current namespace of that name.
	namespaceUID types.UID
	// After is the beginning of the list: items are ordered by node name and then by key.
	After Position
	// Limit is the maximum number of items; 0 is maxItems. There may be fewer, followed by others.
	Limit int
	// Match returns false for items to omit; nil omits none.
	Match func(session.Session) bool
}

// has reports whether a node may answer with an item. Items of other nodes or queries are omitted.
func (q *Query) has(r session.Session, node string) bool {
	return r.Node == node && r.Namespace != "" && (q.Namespace == "" || r.Namespace == q.Namespace) && (q.ID == "" || r.ID == q.ID) &&
		(q.Match == nil || q.Match(r))
}

// Position is between two items: after the items of nodes before Node, and after the items of Node up to the key After.
type Position struct {
	Node  string `json:"node"`
	After string `json:"after,omitempty"`
	// Read is the number of items of Node before it: at most maxReports of a node are listed.
	Read int `json:"read,omitempty"`
}

// Found is a list, or a part of one.
type Found[T item] struct {
	Items []T
	// Claims are the claims on nodes with sessions.
	Claims []v1alpha1.ArmedClaim
	// Silent are the nodes that did not answer, Truncated the nodes that have more items than are listed per node; both in order.
	Silent, Truncated []string
	// Next is the beginning of the rest, or nil. Rest are the nodes with further items, if known.
	Next *Position
	Rest []string
}

// token is the form of a Position for clients. They may only send it back, but could send anything.
type token struct {
	Version int `json:"v"`
	// Resource is the resource of the list; tokens of reports contain none, like tokens of earlier versions.
	Resource string `json:"resource,omitempty"`
	// Namespace is the namespace of the list.
	Namespace string `json:"namespace"`
	Position
}

const (
	tokenVersion = 1
	maxToken     = 1 << 10
)

// keyPattern matches keys of items.
var keyPattern = regexp.MustCompile(`^[0-9a-z-]{0,126}$`)

var (
	errToken = errors.New("not a token of this list")
	// errExpired requires that a list starts again.
	errExpired = errors.New("a token of another version of the controller")
)

// encode returns the token of a position in the list of a namespace.
func (p Position) encode(of *kind, namespace string) (string, error) {
	raw, err := json.Marshal(token{tokenVersion, of.token(), namespace, p})
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// decodePosition decodes a token. It returns errExpired for another version, and errToken if it does not belong to this namespace's list.
func decodePosition(text string, of *kind, namespace string) (Position, error) {
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
	if decoder.Decode(&t) != nil || t.Version != tokenVersion || t.Resource != of.token() || t.Namespace != namespace || len(validation.IsDNS1123Subdomain(t.Node)) > 0 ||
		!keyPattern.MatchString(t.After) || t.Read < 0 || t.Read > maxReports {
		return Position{}, errToken
	}
	return t.Position, nil
}

// items returns the maximum number of items of the list.
func (q *Query) items() int { return min(cmp.Or(q.Limit, maxItems), maxItems) }
