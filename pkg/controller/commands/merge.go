package commands

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// clockTolerance is the difference between clocks that is not reported.
	clockTolerance = 100 * time.Millisecond
	// maxReason limits the reason of a refusal.
	maxReason = 512
)

// Merge is the status of a command while nodes answer. Use NewMerge; it is safe for concurrent use.
type Merge struct {
	mu sync.Mutex
	// named is whether the command names its targets; open are the named ones without an answer.
	named  bool
	open   sets.Set[string]
	status v1alpha1.SessionCommandStatus
}

// NewMerge returns the status before the first answer.
func NewMerge(c session.Command) *Merge {
	return &Merge{named: c.Selection == nil, open: sets.New(Targets(c)...)}
}

// Exchange is a request to a node.
type Exchange struct {
	Node string
	// Sent and Received are the controller's clock before the request was sent, and when the answer began.
	Sent, Received time.Time
}

// Add adds the answer of a node. Targets that are not named, or that another node has answered about, are omitted: a compromised node
// answers only about its own sessions.
func (m *Merge) Add(of Exchange, a session.Accepted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range a.Names {
		if !m.take(name) {
			continue
		}
		m.status.Accepted++
		if len(m.status.Names) < session.MaxNames {
			m.status.Names = append(m.status.Names, name)
		}
	}
	for _, r := range a.Refused {
		if m.take(r.Name) {
			m.refuse(r.Name, strings.ToValidUTF8(r.Reason[:min(len(r.Reason), maxReason)], ""))
		}
	}
	if offset, differs := of.offset(a.Now); differs && len(m.status.Clocks) < session.MaxNames {
		m.status.Clocks = append(m.status.Clocks, v1alpha1.NodeClock{Node: of.Node, OffsetMilliseconds: offset.Milliseconds()})
	}
}

// take reports whether a node may answer about a target.
func (m *Merge) take(name string) bool {
	if !m.named {
		return len(validation.IsDNS1123Label(name)) == 0
	}
	if !m.open.Has(name) {
		return false
	}
	m.open.Delete(name)
	return true
}

func (m *Merge) refuse(name, reason string) {
	if len(m.status.Refused) < session.MaxNames {
		m.status.Refused = append(m.status.Refused, v1alpha1.RefusedSession{Session: name, Reason: reason})
	}
}

// offset returns how far the clock of a node is ahead, and whether that is certainly more than the tolerance: the node read its clock at any
// time of the exchange.
func (e Exchange) offset(now time.Time) (offset time.Duration, differs bool) {
	half := e.Received.Sub(e.Sent) / 2
	offset = now.Sub(e.Sent.Add(half))
	return offset, !now.IsZero() && offset.Abs()-half > clockTolerance
}

// Silent adds a node that did not answer.
func (m *Merge) Silent(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.SilentNodes = append(m.status.SilentNodes, node)
}

// Status returns the status after all answers: named targets that no node knows are refused. The function joins nodes for a sentence.
func (m *Merge) Status(join func(nodes []string) string) v1alpha1.SessionCommandStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.status
	slices.Sort(s.SilentNodes)
	reason := "not found"
	if len(s.SilentNodes) > 0 {
		reason += ", and these nodes did not answer: " + join(s.SilentNodes)
	}
	for name := range m.open {
		m.refuse(name, reason)
	}
	m.open = nil
	slices.Sort(s.Names)
	slices.SortFunc(s.Refused, func(a, b v1alpha1.RefusedSession) int { return cmp.Compare(a.Session, b.Session) })
	slices.SortFunc(s.Clocks, func(a, b v1alpha1.NodeClock) int { return cmp.Compare(a.Node, b.Node) })
	return *s
}
