package model

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clock is the time of a node in tests.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// clocked returns a node whose clock stands still, and a session that sees all of it.
func clocked(t *testing.T, board string) (*Node, *Session, *clock) {
	t.Helper()
	return clockedSpec(t, Uniform("node-a", board, 1))
}

func clockedSpec(t *testing.T, spec Spec) (*Node, *Session, *clock) {
	t.Helper()
	node, err := New(spec)
	require.NoError(t, err)
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	node.SetClock(func() time.Time { return c.now })
	session, err := node.Open("", []int{0})
	require.NoError(t, err)
	return node, session, c
}

func read(t *testing.T, session *Session) Reading {
	t.Helper()
	r, err := session.Read(handleOf(0))
	require.NoError(t, err)
	return r
}

// working adds a process that requests a share of the multiprocessors.
func working(t *testing.T, session *Session, h Handle, pid int, sm float64) uint64 {
	t.Helper()
	id, err := session.CreateContext(h, ContextSpec{PID: pid})
	require.NoError(t, err)
	require.NoError(t, session.SetWork(h, id, sm))
	return id
}

func TestRead_Idle_BoardAtRest(t *testing.T) {
	for _, id := range BoardIDs() {
		_, session, c := clocked(t, id)
		c.pass(10 * time.Second)
		r := read(t, session)
		board, err := BoardByID(id)
		require.NoError(t, err)
		assert.Equal(t, board.Power.Idle, r.Milliwatts(), id)
		assert.Equal(t, uint64(board.Power.Idle)*10, r.Millijoules(), id)
		assert.Equal(t, uint64(1), r.ClockReasons(), id)
		assert.Zero(t, r.Percent(QuantityGraphics), id)
		assert.NotZero(t, board.Sensors().BAR1MiB, id)
	}
}

func TestRead_Processes_WorkCountedUntilTheyEnd(t *testing.T) {
	_, session, c := clocked(t, "h100-80")
	gpu := handleOf(0)
	first := working(t, session, gpu, 101, 60)
	working(t, session, gpu, 102, 20)
	assert.Equal(t, uint32(80), read(t, session).Percent(QuantityGraphics))
	c.pass(10 * time.Second)
	require.NoError(t, session.DestroyContext(gpu, first))
	c.pass(5 * time.Second)
	r := read(t, session)
	assert.Equal(t, uint32(20), r.Percent(QuantitySM))
	assert.InDelta(t, 80*10+20*5, r.Sums[QuantitySM], 1e-6)
	assert.Equal(t, uint64(900)<<20, r.Bytes(QuantityPCIeTx))
}

// If processes request more than the GPU has, each gets less: no sum is above 100 percent.
func TestRead_TooMuchWork_CappedAndShared(t *testing.T) {
	node, session, c := clocked(t, "h100-80")
	working(t, session, handleOf(0), 101, 90)
	working(t, session, handleOf(0), 102, 60)
	c.pass(time.Second)
	assert.Equal(t, uint32(100), read(t, session).Percent(QuantitySM))
	samples, err := session.ProcessUtilization(handleOf(0), 0)
	require.NoError(t, err)
	require.Len(t, samples, 2)
	assert.Equal(t, []uint32{60, 40}, []uint32{samples[0].SM, samples[1].SM})
	assert.InDelta(t, 60, node.GPUs()[0].Processes[0].SM, 1e-9)
}

func TestSetLoad_Steps_IntegratedExactly(t *testing.T) {
	node, session, c := clocked(t, "h100-80")
	var script Script
	require.NoError(t, json.Unmarshal([]byte(`{"steps":[
		{"for":"10s","values":{"power":500,"throttle-power":1,"ecc-corrected":3}},
		{"for":"5s","values":{"power":100,"nvlink-tx":900}}]}`), &script))
	uuid := node.Identities()[0].UUID
	require.NoError(t, node.SetLoad(uuid, script))
	c.pass(4 * time.Second)
	assert.Equal(t, uint64(0x5), read(t, session).ClockReasons(), "idle, and limited by power")
	c.pass(8 * time.Second)
	r := read(t, session)
	assert.Equal(t, uint64(500*10+100*2)*1000, r.Millijoules())
	assert.Equal(t, uint64(10*time.Second), r.Nanoseconds(QuantityThrottlePower))
	assert.InDelta(t, 3, r.Sums[QuantityECCCorrected], 0, "an event happens once")
	assert.Equal(t, uint64(1800)<<20, r.Bytes(QuantityNVLinkTx))
	c.pass(time.Minute)
	assert.Equal(t, r.Board.Power.Idle, read(t, session).Milliwatts(), "the script has ended")
	require.NoError(t, node.SetLoad(uuid, Script{Repeat: true, Steps: []Step{
		{For: time.Second, Values: map[Quantity]float64{QuantityECCCorrected: 1, QuantitySM: 100}},
		{For: time.Second},
	}}))
	before := read(t, session).Sums[QuantitySM]
	c.pass(10 * time.Second)
	assert.InDelta(t, 8, read(t, session).Sums[QuantityECCCorrected], 0)
	assert.InDelta(t, 500, read(t, session).Sums[QuantitySM]-before, 1e-6)
}

func TestSetLoad_Impossible_Refused(t *testing.T) {
	node, _, _ := clocked(t, "h100-80")
	uuid := node.Identities()[0].UUID
	load := func(step ...Step) error { return node.SetLoad(uuid, Script{Steps: step}) }
	require.ErrorContains(t, load(Step{Values: map[Quantity]float64{QuantitySM: 101}}), "sm is 101: must be at least 0 and at most 100")
	require.ErrorContains(t, load(Step{}, Step{}), "only the last step")
	require.ErrorContains(t, load(Step{For: time.Microsecond}), "shorter than 1ms")
	require.ErrorIs(t, node.SetLoad("GPU-none", Script{}), NotFound)
	_, err := ParseQuantity("smm")
	require.ErrorContains(t, err, `reading quantity "smm": supported names: [graphics sm`)
}

// A reload of the driver restarts all counters, except for counters that the board keeps.
func TestLoad_Driver_CountersRestart(t *testing.T) {
	node, session, c := clocked(t, "h100-80")
	require.NoError(t, node.SetLoad(node.Identities()[0].UUID, Script{Steps: []Step{
		{Values: map[Quantity]float64{QuantityECCUncorrected: 2, QuantityRowsUncorrectable: 1, QuantitySM: 50}},
	}}))
	c.pass(time.Second)
	read(t, session)
	node.Unload()
	c.pass(time.Hour)
	require.NoError(t, node.Load(DefaultDriver))
	again, err := node.Open("", []int{0})
	require.NoError(t, err)
	r := read(t, again)
	assert.Zero(t, r.Millijoules())
	assert.Zero(t, r.Sums[QuantityECCUncorrected])
	assert.InDelta(t, 2, r.Lifetime[QuantityECCUncorrected], 0)
	assert.InDelta(t, 1, r.Lifetime[QuantityRowsUncorrectable], 0)
	assert.Zero(t, r.Percent(QuantitySM))
	_, err = again.ProcessUtilization(handleOf(0), 0)
	require.ErrorIs(t, err, NotFound)
}

func TestProcessUtilization_LastSeen_OnlyLaterSamples(t *testing.T) {
	_, session, c := clocked(t, "t4")
	gpu := handleOf(0)
	_, err := session.ProcessUtilization(gpu, 0)
	require.ErrorIs(t, err, NotFound, "nothing works")
	id := working(t, session, gpu, 101, 60)
	working(t, session, gpu, 102, 30)
	c.pass(time.Second)
	samples, err := session.ProcessUtilization(gpu, 0)
	require.NoError(t, err)
	require.Len(t, samples, 2)
	seen := samples[0].Time
	_, err = session.ProcessUtilization(gpu, seen)
	require.ErrorIs(t, err, NotFound, "no newer sample")
	require.NoError(t, session.DestroyContext(gpu, id))
	c.pass(time.Second)
	samples, err = session.ProcessUtilization(gpu, seen)
	require.NoError(t, err)
	assert.Equal(t, []ProcessSample{{PID: 102, Time: seen + 1e6, SM: 30, Memory: 15}}, samples)
	samples, err = session.ProcessUtilization(gpu, 0)
	require.NoError(t, err)
	assert.Len(t, samples, 2, "the whole buffer still contains the process that exited")
	c.pass(2 * sampleBuffer)
	samples, err = session.ProcessUtilization(gpu, 0)
	require.NoError(t, err)
	assert.Len(t, samples, 1)
}
