package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reference is one run of a scenario to its end, from which all its points are computed: up to its last fault point, a killed process does
// the same.
type reference struct {
	scenario *scenario
	spec     childSpec
	// journal is the journal of the process, epoch the time of its clock, disk the state of the disk before it.
	journal []change
	epoch   time.Time
	disk    func() *replay
}

// point is a moment at which a process is killed, or a state of the disk that a power cut at that moment may leave.
type point struct {
	stratum
	// at is the fault point, late: after its effect. upTo is the length of the journal by then.
	at   int
	late bool
	upTo int
	// left is the disk after a power cut, nil for a kill; ended and cluster are the reported results and the state of the API server.
	left    image
	ended   map[int]error
	cluster string
}

// runToEnd runs a scenario without a kill, and checks it.
func (m *Machine) runToEnd(t *testing.T, s *scenario, o childSpec) *reference {
	t.Helper()
	m.setUp(t, s)
	before, err := read(m.durable()...)
	require.NoError(t, err)
	o.KillAt = 0
	end := m.spawn(t, o)
	require.False(t, end.killed)
	require.NoError(t, end.asExpected(s))
	require.NoError(t, m.recoverAfter(t, claimStates(s, end.ended), true, false))
	return &reference{scenario: s, spec: o, journal: end.journal, epoch: m.epoch, disk: before.clone}
}

// points returns all points of the scenario, each state of the disk once.
func (r *reference) points() (points []point) {
	disk, seen := r.disk(), map[string]bool{}
	now := point{stratum: stratum{Act: -1}, ended: map[int]error{}}
	if !r.spec.Early {
		now.Act = 0
	}
	changed := true
	for i, c := range r.journal {
		switch c.Call {
		case inCluster:
			now.cluster, changed = string(c.Data), true
		case reported:
			result := outcome{ended: map[int]error{}}
			for act, err := range now.ended {
				result.ended[act] = err
			}
			result.readLine(string(c.Data))
			now.ended, now.Act, changed = result.ended, len(result.ended), true
		case reached, passed:
			now.Site, now.at, now.late, now.upTo = c.Path, c.At, c.Call == passed, i+1
			points = append(points, now)
			if changed {
				points = append(points, now.cuts(disk, seen)...)
			}
			changed = false
		default:
			disk.apply(c)
			changed = true
		}
	}
	return points
}

// cuts returns the states that a power cut may leave now and that were not seen before.
func (p point) cuts(disk *replay, seen map[string]bool) (cuts []point) {
	for _, left := range disk.images() {
		if key := fmt.Sprint(left, p.ended, p.cluster); !seen[key] {
			seen[key] = true
			p.left = left
			cuts = append(cuts, p)
		}
	}
	return cuts
}

// shareOf returns the share of a family's points that this run tries.
func shareOf(t *testing.T, family string) share {
	t.Helper()
	if full() {
		return everything
	}
	part, err := familyShare(family)
	require.NoError(t, err)
	return part
}

// tryPoints kills the process and cuts the power at the points of the scenario that belong to the share.
func (m *Machine) tryPoints(t *testing.T, s *scenario, o childSpec, cut *Machine, part share) {
	t.Helper()
	r := m.runToEnd(t, s, o)
	points := r.points()
	require.Greater(t, len(points), 10)
	tally.all.Add(int64(len(points)))
	tried := 0
	for i, chosen := range part.choose(s.name, strataOfPoints(points)) {
		if !chosen {
			continue
		}
		tried++
		if !m.try(t, r, &points[i], i, cut) {
			return
		}
	}
	t.Logf("%d of %d points, share %s", tried, len(points), part)
}

func strataOfPoints(points []point) []stratum {
	strata := make([]stratum, len(points))
	for i := range points {
		strata[i] = points[i].stratum
	}
	return strata
}

// try tries a point; false if an invariant was violated.
func (m *Machine) try(t *testing.T, r *reference, p *point, index int, cut *Machine) bool {
	t.Helper()
	if p.left == nil {
		return m.tryKill(t, r, p, cut)
	}
	return m.tryPowerCut(t, r.scenario, p, index%2 == 0, cut)
}

// tryKill kills a process at the point, checks its state and recovers. Until then the process has done the same as the reference, unless it
// also works in the background, as only processes of layout changes do: then another order, or a fault point less, is acceptable.
func (m *Machine) tryKill(t *testing.T, r *reference, p *point, cut *Machine) bool {
	t.Helper()
	m.setUp(t, r.scenario)
	o := r.spec
	o.KillAt, o.Late = p.at, p.late
	end := m.spawn(t, o)
	require.True(t, end.killed || m.worksBeside(), "there is no fault point %d, which was %s", p.at, p.Site)
	if !end.killed {
		// This run had one fault point less than the reference, so nothing was tried.
		tally.all.Add(-1)
		require.NoError(t, end.asExpected(r.scenario))
		require.NoError(t, m.recoverAfter(t, claimStates(r.scenario, end.ended), !p.late, false))
		return true
	}
	cluster, err := m.clusterState()
	require.NoError(t, err)
	if !countKillPoint(t, m.recoverAfter(t, claimStates(r.scenario, end.ended), !p.late, false), "killed at fault point %d, %s (late %t)", p.at, p.Site, p.late) {
		return false
	}
	differs := sameJournal(relativeJournal(r.journal[:p.upTo], r.epoch), relativeJournal(end.journal, m.epoch))
	if differs == nil {
		return true
	}
	require.True(t, m.worksBeside(), "%v", differs)
	return m.tryOtherOrder(t, r, p, end, cluster, cut)
}

// worksBeside reports whether processes work in the background beside acts.
func (m *Machine) worksBeside() bool { return m.layoutChanges && m.health == nil }

// tryOtherOrder tries the power cuts of a process whose background work, which only layouts have, ran in another order than in the
// reference. The states that such a process leaves are not among the points of the reference.
func (m *Machine) tryOtherOrder(t *testing.T, r *reference, p *point, end outcome, cluster string, cut *Machine) bool {
	t.Helper()
	disk, now := r.disk(), *p
	for _, c := range end.journal {
		disk.apply(c)
	}
	now.ended, now.cluster = end.ended, cluster
	for i, other := range now.cuts(disk, map[string]bool{}) {
		tally.all.Add(1)
		if !m.tryPowerCut(t, r.scenario, &other, i%2 == 0, cut) {
			return false
		}
	}
	return true
}

// tryPowerCut recovers from the state of the disk at the point.
func (m *Machine) tryPowerCut(t *testing.T, s *scenario, p *point, wanted bool, cut *Machine) bool {
	t.Helper()
	cut.bootAfter(t, m, s, p.left, p.cluster)
	err := cut.recoverAfter(t, claimStates(s, p.ended), wanted, true)
	return countKillPoint(t, err, "power cut at fault point %d, %s (late %t) that left %.600s", p.at, p.Site, p.late, fmt.Sprint(p.left))
}

// bootAfter boots the machine with the disk that a power cut has left of another one. Its administrator creates the scenario's static MIG
// devices at every boot.
func (m *Machine) bootAfter(t *testing.T, other *Machine, s *scenario, left image, cluster string) {
	t.Helper()
	m.later = bootTime
	m.bootHealth(other)
	require.NoError(t, errors.Join(m.setProfiled(other.profiled), left.lay(other.dir(), m.dir(), other.durable()...), m.Reboot(), m.setClusterState(cluster)))
	m.lost, m.layoutChanges, m.fakeTime, m.nullFamily, m.parts.layout = other.lost, other.layoutChanges, other.fakeTime, other.nullFamily, other.parts.layout
	for _, made := range s.static {
		require.NoError(t, m.createStatic(t.Context(), made))
	}
}

// times matches the times in a journal: times of files, and times in the names of folders that are removed.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|-[0-9a-z]{12}\b`)

// derived matches text that depends on times: checksums of records, and the times of publications in fake time, which depend on the jitter
// of retries. It also matches the UIDs of reports, which are random, including the part of one in a write in two parts.
var derived = regexp.MustCompile(`"crc32c":"[^"]*"|"Since":"[^"]*"|"uid":"[A-Z2-7]{1,26}\b"?|^[A-Z2-7]{1,26}"`)

// relative returns a text with times relative to the machine's epoch, which differs in each run, and without text that depends on times.
func relative(text string, epoch time.Time) string {
	text = times.ReplaceAllStringFunc(text, func(text string) string {
		at, err := time.Parse(time.RFC3339, text)
		if number, notNumber := strconv.ParseInt(text[1:], 36, 64); err != nil && notNumber == nil {
			at, err = time.Unix(0, number), nil
		}
		if distance := at.Sub(epoch); err == nil && distance.Abs() < 24*time.Hour {
			return distance.String()
		}
		return text
	})
	return derived.ReplaceAllString(text, "")
}

// relativeJournal applies relative to all texts of a journal.
func relativeJournal(entries []change, epoch time.Time) (all []change) {
	for _, c := range entries {
		c.Path, c.To, c.Data = relative(c.Path, epoch), relative(c.To, epoch), []byte(relative(string(c.Data), epoch))
		all = append(all, c)
	}
	return all
}

// sameJournal compares the journals of two runs of a scenario.
func sameJournal(want, got []change) error {
	for i := range max(len(want), len(got)) {
		if i >= len(got) || i >= len(want) {
			return fmt.Errorf("the journals have %d and %d entries; %s", len(want), len(got), journalEnd(want, got))
		}
		a, b := want[i], got[i]
		if a.Call != b.Call || a.Path != b.Path || a.To != b.To || a.At != b.At || a.Durable != b.Durable || !bytes.Equal(a.Data, b.Data) {
			return fmt.Errorf("entry %d of the journal differs:\n%s %s %s %d %q\n%s %s %s %d %q", i, a.Call, a.Path, a.To, a.At, a.Data, b.Call, b.Path, b.To, b.At, b.Data)
		}
	}
	return nil
}

// journalEnd returns the first entry that only one of two journals contains.
func journalEnd(a, b []change) string {
	longer, from := a, len(b)
	if len(b) > len(a) {
		longer, from = b, len(a)
	}
	return fmt.Sprintf("%s %s %d %q", longer[from].Call, longer[from].Path, longer[from].At, longer[from].Data)
}

// sameJournals checks that two runs of a scenario leave the same journal. So the points of one are the points of the other, and each state
// of the disk is tried once.
func sameJournals(t *testing.T, killed *Machine) {
	for _, s := range selectedScenarios() {
		if s.races() {
			continue
		}
		t.Run(s.name, func(t *testing.T) { runTwice(t, killed, s, childSpec{Acts: s.acts, Refuse: s.refuse, Early: s.early}) })
	}
}

// Processes with MPS run in the process of the test.
func TestMPS_RunTwice_SameJournal(t *testing.T) {
	t.Parallel()
	for _, s := range selectedMPSScenarios() {
		if s.races() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			runTwice(t, newMPSMachine(t), s, childSpec{Acts: s.acts, Refuse: s.refuse, Early: s.early, GPUsLost: s.gpusLost})
		})
	}
}

func runTwice(t *testing.T, m *Machine, s *scenario, o childSpec) {
	t.Helper()
	first, second := m.runToEnd(t, s, o), m.runToEnd(t, s, o)
	raw, distinct := statesOf(first, second)
	points, tried := first.points(), map[int]bool{}
	for index := range 5 {
		for i, chosen := range (share{index, 5}).choose(s.name, strataOfPoints(points)) {
			tried[i] = tried[i] || chosen
		}
	}
	t.Logf("%d points, %d states of the disk", len(points), distinct)
	require.Len(t, tried, len(points))
	require.NotContains(t, slices.Collect(maps.Values(tried)), false, "five shares together try every point")
	if m.worksBeside() {
		return // background work may run in another order
	}
	require.NoError(t, sameJournal(relativeJournal(first.journal, first.epoch), relativeJournal(second.journal, second.epoch)))
	require.Equal(t, distinct, raw, "states of the disk of two runs")
}

// statesOf counts the states of the disk that power cuts in two runs of a scenario may leave: raw counts the states of both runs together,
// distinct the states of the first.
func statesOf(first, second *reference) (raw, distinct int) {
	seen := map[string]bool{}
	for _, r := range []*reference{first, second} {
		for _, p := range r.points() {
			if p.left != nil {
				seen[relative(fmt.Sprint(p.left, p.ended, p.cluster), r.epoch)] = true
			}
		}
		if r == first {
			distinct = len(seen)
		}
	}
	return len(seen), distinct
}
