package commands

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

func join(nodes []string) string { return strings.Join(nodes, " and ") }

// instant is an exchange without duration.
func instant(node string) Exchange { return Exchange{node, now, now} }

func TestMerge_Named_EachTargetOnceInOrder(t *testing.T) {
	t.Parallel()
	m := NewMerge(session.Command{Sessions: []string{"a", "b", "c", "d"}})
	m.Add(instant("n1"), session.Accepted{Names: []string{"b", "x", "b"}, Refused: []session.Refusal{{Name: "c", Reason: "it is recording already"}}})
	m.Add(instant("n0"), session.Accepted{Names: []string{"c", "a"}, Refused: []session.Refusal{{Name: "b", Reason: "another's"}, {Name: "y"}}})
	assert.Equal(t, v1alpha1.SessionCommandStatus{
		Accepted: 2, Names: []string{"a", "b"},
		Refused: []v1alpha1.RefusedSession{{Session: "c", Reason: "it is recording already"}, {Session: "d", Reason: "not found"}},
	}, m.Status(join))
}

func TestMerge_NotFoundWhileNodesAreSilent_NamesThem(t *testing.T) {
	t.Parallel()
	m := NewMerge(session.Command{Claims: []string{"train"}})
	m.Silent("n2")
	m.Silent("n1")
	assert.Equal(t, v1alpha1.SessionCommandStatus{
		SilentNodes: []string{"n1", "n2"}, Refused: []v1alpha1.RefusedSession{{Session: "train", Reason: "not found, and these nodes did not answer: n1 and n2"}},
	}, m.Status(join))
}

func TestMerge_Selection_CountedAndBounded(t *testing.T) {
	t.Parallel()
	m := NewMerge(session.Command{Selection: &session.Selection{}})
	for i := range 3 {
		a := session.Accepted{Names: several(900)}
		for _, name := range several(900) {
			a.Refused = append(a.Refused, session.Refusal{Name: name, Reason: strings.Repeat("ä", maxReason)})
		}
		m.Add(instant(string(rune('a'+i))), a)
	}
	m.Add(instant("hostile"), session.Accepted{Names: []string{"../a", "", strings.Repeat("a", 64)}})
	s := m.Status(join)
	assert.Equal(t, 2700, s.Accepted)
	assert.Len(t, s.Names, session.MaxNames)
	assert.Len(t, s.Refused, session.MaxNames)
	assert.Equal(t, strings.Repeat("ä", maxReason/2), s.Refused[0].Reason)
}

// TestMerge_Clocks_CertainDifferencesOnly: a node reads its clock at any time of the exchange.
func TestMerge_Clocks_CertainDifferencesOnly(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		took, ahead time.Duration
		want        int64
	}{
		"same": {0, 0, 0}, "at the limit": {0, 100 * ms, 0}, "ahead": {0, 101 * ms, 101}, "behind": {0, -3 * time.Second, -3000},
		"read at the end": {800 * ms, 850 * ms, 0}, "ahead, read at the end": {800 * ms, 1200 * ms, 800}, "behind, read at the beginning": {800 * ms, -150 * ms, -550},
	} {
		m := NewMerge(session.Command{})
		m.Add(Exchange{"n0", now, now.Add(c.took)}, session.Accepted{Now: now.Add(c.ahead)})
		m.Add(instant("earlier"), session.Accepted{})
		var want []v1alpha1.NodeClock
		if c.want != 0 {
			want = []v1alpha1.NodeClock{{Node: "n0", OffsetMilliseconds: c.want}}
		}
		assert.Equal(t, want, m.Status(join).Clocks, name)
	}
}
