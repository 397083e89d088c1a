package finding

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const id gpu.UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000000"

var start = time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC)

func action(n int) *gpu.RecoveryAction {
	a := gpu.RecoveryAction(n)
	return &a
}

// healthy is a reading without a problem of a driver that reports recovery actions.
func healthy() gpu.HealthReading {
	return gpu.HealthReading{UUID: id, Action: action(0), Events: true}
}

// TestState_EveryProblem_TaintUntilThreeCleanPolls: the table of docs/health.md.
func TestState_EveryProblem_TaintUntilThreeCleanPolls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want   string
		change func(r *gpu.HealthReading)
	}{
		{"", func(*gpu.HealthReading) {}},
		{"gpu-lost=lost NoSchedule", func(r *gpu.HealthReading) { r.Err = fmt.Errorf("polling: %w", gpu.ErrLost) }},
		{"gpu-lost=lost NoSchedule", func(r *gpu.HealthReading) { r.Err = gpu.ErrNotFound }},
		{"gpu-lost=lost NoSchedule", func(r *gpu.HealthReading) { r.Err = errors.New("unknown error 999") }},
		{"gpu-lost=hung NoSchedule", func(r *gpu.HealthReading) { r.Err = fmt.Errorf("polling: %w", gpu.ErrTimeout) }},
		{"gpu-lost=device-node NoSchedule", func(r *gpu.HealthReading) { r.MissingNode = "/dev/nvidia0" }},
		{"recovery-action=gpu-reset NoSchedule", func(r *gpu.HealthReading) { r.Action = action(1) }},
		{"recovery-action=node-reboot NoSchedule", func(r *gpu.HealthReading) { r.Action = action(2) }},
		{"recovery-action=drain-p2p NoSchedule", func(r *gpu.HealthReading) { r.Action = action(3) }},
		{"recovery-action=drain-and-reset NoSchedule", func(r *gpu.HealthReading) { r.Action = action(4) }},
		{"recovery-action=recover-imex-domain None", func(r *gpu.HealthReading) { r.Action = action(5) }},
		{"recovery-action=bus-reset NoSchedule", func(r *gpu.HealthReading) { r.Action = action(6) }},
		{"recovery-action=system-reboot NoSchedule", func(r *gpu.HealthReading) { r.Action = action(7) }},
		{"recovery-action=unknown-8 NoSchedule", func(r *gpu.HealthReading) { r.Action = action(8) }},
		{"memory=row-remap-failure NoSchedule", func(r *gpu.HealthReading) { r.RowRemapFailure, r.RowRemapPending = true, true }},
		{"memory=row-remap-pending None", func(r *gpu.HealthReading) { r.RowRemapPending = true }},
		{"memory=retirement-pending None", func(r *gpu.HealthReading) { r.RetirementPending = true }},
		{"fabric=not-ready NoSchedule", func(r *gpu.HealthReading) { r.Fabric = gpu.FabricNotReady }},
		{"", func(r *gpu.HealthReading) { r.Fabric = gpu.FabricCompleted }},
		{"unmonitored= None", func(r *gpu.HealthReading) { r.Action, r.Events = nil, false }},
		{"", func(r *gpu.HealthReading) { r.Events = false }},
		{"", func(r *gpu.HealthReading) { r.Action = nil }},
	} {
		s := NewState(Rules{})
		r := healthy()
		c.change(&r)
		want, changed := c.want, s.Observe(&r, start, true)
		assert.Equal(t, want, shown(s), "shown by the first poll")
		assert.Equal(t, want != "", changed)
		assert.False(t, s.Observe(&r, start.Add(10*time.Second), true), "the same is no change")
		for range 2 {
			good := healthy()
			s.Observe(&good, start, true)
			assert.Equal(t, want, shown(s))
		}
		good := healthy()
		assert.False(t, s.Observe(&good, start, false), "a poll after an event does not end it")
		assert.Equal(t, want != "", s.Observe(&good, start, true))
		assert.Empty(t, s.All(), want)
	}
}

// TestState_LostGPUHangsInTurn_OneChange: it would be written every 10 s.
func TestState_LostGPUHangsInTurn_OneChange(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	changes := 0
	for i := range 9 {
		err := []error{gpu.ErrTimeout, gpu.ErrLost}[i%2]
		if s.Observe(&gpu.HealthReading{UUID: id, Err: err}, start, true) {
			changes++
		}
	}
	assert.Equal(t, "gpu-lost=lost NoSchedule", shown(s))
	assert.Equal(t, 2, changes)
}

// shown is the taints of the GPU.
func shown(s *State) (text string) {
	for i, f := range Taints(s.All()) {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s=%s %s", f.Key, f.Value, f.Effect)
	}
	return text
}

// TestState_GPUDoesNotAnswer_OtherFindingsStay: nothing is known about them.
func TestState_GPUDoesNotAnswer_OtherFindingsStay(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	r := healthy()
	r.Action, r.Fabric, r.RowRemapFailure = action(1), gpu.FabricNotReady, true
	s.Observe(&r, start, true)
	for range 9 {
		s.Observe(&gpu.HealthReading{UUID: id, Err: gpu.ErrTimeout}, start, true)
		s.Observe(&gpu.HealthReading{UUID: id, Err: gpu.ErrLost}, start, true)
	}
	assert.Equal(t, "fabric=not-ready NoSchedule, gpu-lost=lost NoSchedule, memory=row-remap-failure NoSchedule, recovery-action=gpu-reset NoSchedule", shown(s))
	s.Observe(&gpu.HealthReading{Err: gpu.ErrLost}, start, true)
	assert.Len(t, s.All(), 4, "a GPU without a UUID has no devices")
}

// TestState_ProblemBetweenCleanPolls_CountsAgain: also if only a poll after an event shows it.
func TestState_ProblemBetweenCleanPolls_CountsAgain(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	good, bad := healthy(), healthy()
	bad.Fabric = gpu.FabricNotReady
	for range 5 {
		s.Observe(&bad, start, false)
		s.Observe(&good, start, true)
		s.Observe(&good, start, true)
		assert.Len(t, s.All(), 1)
	}
}

// TestState_ValueChanges_BeginStays: tolerationSeconds of pods do not start again; they start when the finding begins to block.
func TestState_ValueChanges_BeginStays(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	for i, c := range []struct {
		action int
		want   time.Duration
	}{{5, 0}, {1, time.Minute}, {2, time.Minute}, {5, 3 * time.Minute}} {
		r := healthy()
		r.Action = action(c.action)
		assert.True(t, s.Observe(&r, start.Add(time.Duration(i)*time.Minute+300*time.Millisecond), true))
		require.Len(t, s.All(), 1)
		assert.Equal(t, start.Add(c.want), s.All()[0].Begin, "in whole seconds")
	}
}

func TestState_XID_DecidedByDriverTablesAndSettings(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for name, c := range map[string]struct {
		xids    XIDs
		driver  bool
		code    uint64
		want    string
		unknown bool
	}{
		"hardware error":                        {code: 79, want: "xid=79 NoSchedule"},
		"hardware error, the driver decides":    {code: 79, driver: true},
		"application error":                     {code: 13},
		"application error, the driver decides": {code: 13, driver: true},
		"unknown":                               {code: 777, unknown: true},
		"unknown, the driver decides":           {code: 777, driver: true},
		"event without a code":                  {code: 0},
		"application error set to Taint":        {xids: XIDs{Taint: map[uint64]bool{45: true}}, code: 45, driver: true, want: "xid=45 NoSchedule"},
		"hardware error set to Ignore":          {xids: XIDs{Taint: map[uint64]bool{74: false}}, code: 74},
		"unknown set to Ignore":                 {xids: XIDs{Taint: map[uint64]bool{777: false}}, code: 777},
		"all disabled":                          {xids: XIDs{All: &no}, code: 79},
		"all disabled but one":                  {xids: XIDs{All: &no, Taint: map[uint64]bool{79: true}}, code: 79, want: "xid=79 NoSchedule"},
		"all enabled":                           {xids: XIDs{All: &yes}, code: 13, driver: true, want: "xid=13 NoSchedule"},
		"all enabled but one":                   {xids: XIDs{All: &yes, Taint: map[uint64]bool{13: false}}, code: 13},
	} {
		s := NewState(Rules{XIDs: c.xids})
		r := healthy()
		if !c.driver {
			r.Action = nil
		}
		s.Observe(&r, start, true)
		changed, unknown := s.XID(id, c.code, start)
		assert.Equal(t, c.want, shown(s), name)
		assert.Equal(t, c.want != "", changed, name)
		assert.Equal(t, c.unknown, unknown, name)
		for range 9 {
			s.Observe(&r, start, true)
		}
		assert.Equal(t, c.want, shown(s), "%s: polls do not end it", name)
	}
}

func TestState_UnknownXID_ReportedOnceAnHour(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	reported := 0
	for at := range 3 * 3600 {
		_, unknown := s.XID(id, uint64(700+at%2), start.Add(time.Duration(at)*time.Second))
		if unknown {
			reported++
		}
	}
	assert.Equal(t, 6, reported)
	assert.Empty(t, s.All())
}

// TestState_ThirdReturn_StaysUntilHealed: a GPU that fails again and again stays out of service.
func TestState_ThirdReturn_StaysUntilHealed(t *testing.T) {
	t.Parallel()
	s, now := NewState(Rules{}), start
	poll := func(bad bool) {
		r := healthy()
		if bad {
			r.Action = action(1)
		}
		now = now.Add(10 * time.Second)
		s.Observe(&r, now, true)
	}
	cycle := func() {
		poll(true)
		for range 3 {
			poll(false)
		}
	}
	for range 3 { // the first time, and two returns
		cycle()
		assert.Empty(t, s.All())
	}
	now = now.Add(hour)
	for range 3 { // the first of these is no return within an hour
		cycle()
		assert.Empty(t, s.All())
	}
	cycle()
	require.Len(t, s.All(), 1, "three returns")
	assert.True(t, s.All()[0].Flapping)
	begin := s.All()[0].Begin
	_, err := s.Heal(id, begin)
	require.EqualError(t, err, "recovery-action=gpu-reset began after the time of the command")
	poll(true)
	_, err = s.Heal(id, now)
	require.ErrorContains(t, err, "recovery-action=gpu-reset is still there: the NVIDIA driver requires a reset")
	poll(false)
	changed, err := s.Heal(id, now)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Empty(t, s.All())
	cycle()
	assert.Empty(t, s.All(), "healed: returns count from here")
}

func TestState_Heal_EndsXIDsThatBeganBefore(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	_, err := s.Heal(id, start)
	require.NoError(t, err, "a GPU without findings is healed")
	s.XID(id, 79, start)
	s.XID(id, 48, start.Add(time.Minute))
	_, err = s.Heal(id, start)
	require.NoError(t, err, "this command was carried out")
	assert.Len(t, s.All(), 2)
	changed, err := s.Heal(id, start.Add(time.Second))
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, "xid=48 NoSchedule", shown(s))
	_, err = s.Heal(id, start.Add(2*time.Second))
	require.EqualError(t, err, "xid=48 began after the time of the command")
	_, err = s.Heal(id, start.Add(-time.Hour))
	require.EqualError(t, err, "xid=48 began after the time of the command", "earlier than the last heal")
	again := NewState(Rules{})
	again.Merge(s.Save())
	changed, err = again.Heal(id, start.Add(time.Second))
	require.NoError(t, err, "the node's annotation is read again after a restart")
	assert.False(t, changed)
	s = NewState(Rules{})
	r := healthy()
	r.RowRemapFailure = true
	s.Observe(&r, start, true)
	s.Declare(Maintenance, map[gpu.UUID]map[string]string{id: {"": "swap"}}, start)
	_, err = s.Heal(id, start.Add(time.Hour))
	require.ErrorContains(t, err, "memory=row-remap-failure ends when its cause is repaired: ")
}

func TestState_DriverLoaded_OnlyDeclaredFindingsStay(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	r := healthy()
	r.Action = action(1)
	s.Observe(&r, start, true)
	s.XID(id, 79, start)
	s.Declare(Maintenance, map[gpu.UUID]map[string]string{id: {"": "swap"}}, start)
	s.Declare(NodeCondition, map[gpu.UUID]map[string]string{id: {"GpuXidError": ""}}, start)
	s.DriverLoaded()
	assert.Equal(t, "maintenance= NoSchedule, node-condition=GpuXidError NoSchedule", shown(s))
	assert.True(t, s.Declare(Maintenance, nil, start))
	assert.Equal(t, "node-condition=GpuXidError NoSchedule", shown(s))
}

func TestState_NoExecute_OnlyBlockingFindingsOfTheKeyEvict(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{NoExecute: map[Key]bool{Memory: true, XID: true}})
	r := healthy()
	r.RowRemapPending, r.Action = true, nil
	s.Observe(&r, start, true)
	s.XID(id, 79, start)
	assert.Equal(t, "memory=row-remap-pending None, xid=79 NoExecute", shown(s))
	r.RowRemapFailure, r.Fabric = true, gpu.FabricNotReady
	s.Observe(&r, start, true)
	assert.Equal(t, "fabric=not-ready NoSchedule, memory=row-remap-failure NoExecute, xid=79 NoExecute", shown(s))
}

// TestTaints_SeveralOfAKey_StrongestThenFirst: another XID does not change the taint.
func TestTaints_SeveralOfAKey_StrongestThenFirst(t *testing.T) {
	t.Parallel()
	s := NewState(Rules{})
	s.XID(id, 95, start)
	s.XID(id, 48, start.Add(time.Second))
	assert.Equal(t, "xid=95 NoSchedule", shown(s))
	assert.Len(t, s.All(), 2)
}

// TestMerge_AnotherProcess_EarlierBeginAndItsFindings: polls end a finding of which this process knows nothing.
func TestMerge_AnotherProcess_EarlierBeginAndItsFindings(t *testing.T) {
	t.Parallel()
	before := NewState(Rules{})
	r := healthy()
	r.Action, r.RowRemapFailure = action(1), true
	before.Observe(&r, start, true)
	before.XID(id, 79, start)
	before.Declare(Maintenance, map[gpu.UUID]map[string]string{id: {"": "swap"}}, start)

	now := NewState(Rules{})
	r.RowRemapFailure = false
	now.Observe(&r, start.Add(time.Hour), true)
	now.Declare(Maintenance, nil, start)
	now.Merge(before.Save())
	assert.Equal(t, "memory=row-remap-failure NoSchedule, recovery-action=gpu-reset NoSchedule", shown(now),
		"declared findings are known, and the driver of a GPU with recovery actions decides about XIDs")
	for _, f := range now.All() {
		assert.Equal(t, start, f.Begin)
	}
	for range 3 {
		now.Observe(&r, start.Add(time.Hour), true)
	}
	assert.Equal(t, "recovery-action=gpu-reset NoSchedule", shown(now))
}

// TestState_AnyOrder_Invariants: whatever happens, a GPU whose last reading blocks is blocked, and the begin of a finding does not move.
func TestState_AnyOrder_Invariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 37))
		s, now := NewState(Rules{}), start
		begins := map[place]Finding{}
		var last gpu.HealthReading
		xids := map[uint64]bool{}
		for step := range 300 {
			now = now.Add(time.Duration(random.IntN(20000)) * time.Millisecond)
			switch random.IntN(12) {
			case 0:
				code := []uint64{13, 79, 48, 777, 31}[random.IntN(5)]
				s.XID(id, code, now)
				if (code == 79 || code == 48) && !s.decides[id] {
					xids[code] = true
				}
			case 1:
				if changed, _ := s.Heal(id, now.Add(time.Second)); changed {
					clear(xids)
				}
			case 2:
				again := NewState(Rules{})
				again.Merge(s.Save())
				last = gpu.HealthReading{UUID: id, Action: last.Action}
				s = again
			case 3:
				reasons := map[gpu.UUID]map[string]string{}
				if random.IntN(2) == 0 {
					reasons[id] = map[string]string{"": "swap"}
				}
				s.Declare(Maintenance, reasons, now)
			default:
				last = anyReading(random)
				s.Observe(&last, now, random.IntN(4) > 0)
			}
			check(t, s, &last, begins, fmt.Sprintf("seed %d, step %d", seed, step))
			for code := range xids {
				assert.Contains(t, s.entries, place{id, XID, fmt.Sprint(code)}, "an XID has ended: seed %d, step %d", seed, step)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// check checks the invariants after a step.
func check(t *testing.T, s *State, last *gpu.HealthReading, begins map[place]Finding, when string) {
	t.Helper()
	blocked := false
	there := map[place]bool{}
	for _, f := range s.All() {
		where := placeOf(&f)
		there[where] = true
		blocked = blocked || f.Unhealthy()
		if before, known := begins[where]; known && before.Effect == f.Effect {
			assert.Equal(t, before.Begin, f.Begin, "the begin moved: %s", when)
		}
		begins[where] = f
		assert.NotEmpty(t, Message(&f))
	}
	for where := range begins {
		if !there[where] {
			delete(begins, where)
		}
	}
	if last.Err != nil || last.MissingNode != "" || last.RowRemapFailure || last.Fabric == gpu.FabricNotReady ||
		last.Action != nil && *last.Action != 0 && *last.Action != 5 {
		assert.True(t, blocked, "a sick GPU gets claims: %s", when)
	}
	keys := map[Key]int{}
	for _, f := range Taints(s.All()) {
		keys[f.Key]++
		assert.Equal(t, 1, keys[f.Key])
	}
}

func anyReading(random *rand.Rand) gpu.HealthReading {
	r := healthy()
	if random.IntN(2) == 0 {
		r.Action = nil
	}
	switch random.IntN(12) {
	case 0:
		return gpu.HealthReading{UUID: id, Err: gpu.ErrLost}
	case 1:
		return gpu.HealthReading{UUID: id, Err: gpu.ErrTimeout}
	case 2:
		r.Action = action(random.IntN(10))
	case 3:
		r.RowRemapFailure = true
	case 4:
		r.RowRemapPending = true
	case 5:
		r.Fabric = gpu.FabricNotReady
	case 6:
		r.MissingNode = "/dev/nvidia0"
	case 7:
		r.Events = false
	}
	return r
}
