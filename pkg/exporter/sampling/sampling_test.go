package sampling

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// most is the number of rounds in which all rotated readers are called.
const most = 8

var architectures = map[string]metrics.Architecture{
	"Turing": metrics.Turing, "Ampere": metrics.Ampere, "Ada Lovelace": metrics.Ada, "Hopper": metrics.Hopper, "Blackwell": metrics.Blackwell,
}

// TestRound_EveryBoard_FieldsOfTheTable: a board has values for exactly the fields that the table lists for it.
func TestRound_EveryBoard_FieldsOfTheTable(t *testing.T) {
	t.Parallel()
	for _, board := range []string{"t4", "a30", "a100-40", "l40s", "h100-80", "b200-180"} {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			c := samplingOn(t, board)
			identity := c.must("open").Identity
			architecture, known := architectures[identity.Architecture]
			require.True(t, known, identity.Architecture)
			assert.Equal(t, architecture >= metrics.Hopper, identity.GPM)
			var r read
			for range most {
				c.pass(time.Second)
				before := c.calls()
				r = c.must("round")
				assert.LessOrEqual(t, c.calls()-before, maxCalls)
			}
			for f := range metrics.FieldCount {
				_, has := r.Values[f]
				row := &metrics.Table[f]
				if f == metrics.FieldRecoveryAction {
					continue // depends on the driver, not on the board
				}
				can := row.On(architecture) && row.Source != "" && (row.Source != metrics.SourceGPM || identity.GPM)
				if row.Where == "" {
					assert.Equal(t, can, has, "%s on %s", row.GPU, board)
				} else {
					assert.False(t, has && !can, "%s on %s", row.GPU, board)
				}
			}
		})
	}
}

func TestRound_LoadedGPU_BaseUnits(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80")
	c.must("open")
	c.must("round")
	working := c.load("--memory", "2Gi", "--sm", "60")
	script := model.Script{Steps: []model.Step{{Values: map[model.Quantity]float64{
		model.QuantityPower: 400, model.QuantityThrottlePower: 1, model.QuantityPCIeReplays: 7, model.QuantityNVLinkTx: 100,
	}}}}
	require.NoError(t, c.node.Model.SetLoad(c.node.Model.Identities()[0].UUID, script))
	before := c.must("round")
	c.pass(10 * time.Second)
	r := c.must("round")
	for field, want := range map[metrics.Field]float64{
		metrics.FieldUtilization: 0.6, metrics.FieldSMActive: 0.6, metrics.FieldPowerUsage: 400, metrics.FieldClockSM: 1980e6,
		metrics.FieldMemoryUsed: (2048 + 512) << 20, metrics.FieldMemoryTotal: 81559 << 20,
		metrics.FieldViolationPower:         before.Values[metrics.FieldViolationPower] + 10,
		metrics.FieldEnergy:                 before.Values[metrics.FieldEnergy] + 4000,
		metrics.FieldNVLinkTransmitted:      before.Values[metrics.FieldNVLinkTransmitted] + 1000<<20,
		metrics.FieldPCIeReceiveRate:        120 << 20,
		metrics.FieldUtilizationMemory:      0.3,
		metrics.FieldECCUncorrectedVolatile: 0,
	} {
		assert.InEpsilon(t, want+1, r.Values[field]+1, 0.001, metrics.Table[field].GPU)
	}
	assert.Greater(t, r.Values[metrics.FieldMemoryReserved], 0., "and used is without it")
	assert.InEpsilon(t, r.Values[metrics.FieldMemoryTotal],
		r.Values[metrics.FieldMemoryUsed]+r.Values[metrics.FieldMemoryFree]+r.Values[metrics.FieldMemoryReserved], 1e-9)
	require.Len(t, r.Processes, 1, "it is in one list")
	p := r.Processes[0]
	assert.Equal(t, uint32(working.Process.Pid), p.PID)
	assert.InDelta(t, 0.6, p.SM, 1e-9)
	assert.GreaterOrEqual(t, p.Memory, float64(2<<30))
	assert.Less(t, p.Memory, float64(3<<30))
}

// Some boards report power as a field value, others by a call of its own.
func TestRound_Power_Watts(t *testing.T) {
	t.Parallel()
	for board, limit := range map[string]float64{"h100-80": 700, "t4": 70} {
		c := samplingOn(t, board)
		script := model.Script{Steps: []model.Step{{Values: map[model.Quantity]float64{model.QuantityPower: limit / 2}}}}
		require.NoError(t, c.node.Model.SetLoad(c.node.Model.Identities()[0].UUID, script))
		c.must("open")
		values := map[metrics.Field]float64{}
		for range 20 { // some values are read by rotation
			c.pass(time.Second)
			for field, value := range c.must("round").Values {
				values[field] = value
			}
		}
		assert.InEpsilon(t, limit, values[metrics.FieldPowerLimit], 0.001, board)
		assert.InEpsilon(t, limit/2, values[metrics.FieldPowerUsage], 0.001, board)
	}
}

func TestProcesses_Idle_SampledAndNoValue(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "t4")
	c.load("--memory", "1Gi", "--sm", "30")
	c.must("open")
	c.pass(time.Second)
	r := c.must("round")
	require.Len(t, r.Processes, 1)
	assert.InDelta(t, -1, r.Processes[0].SM, 0, "the first round has no beginning")
	assert.False(t, r.Sampled)
	c.pass(time.Second)
	assert.InDelta(t, 0.3, c.must("round").Processes[0].SM, 1e-9)
	r = c.must("round")
	assert.InDelta(t, -1, r.Processes[0].SM, 0, "samples that were seen are not counted again")
	assert.True(t, r.Sampled, "the driver has none, and says so")
}

func TestRound_MIG_InstancesByGPM(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80", []string{"-i", "0", "-mig", "1"}, []string{"mig", "-cgi", "19,14", "-C"})
	assert.True(t, c.must("open").Identity.MIGMode)
	working := c.load("--memory", "1Gi", "--sm", "66")
	first := c.must("round")
	require.Len(t, first.MIGDevices, 2)
	for _, m := range first.MIGDevices {
		assert.NotContains(t, m.Values, metrics.FieldUtilization, "the first sample is compared with none")
	}
	for range most {
		c.pass(time.Second)
		before := c.calls()
		r := c.must("round")
		assert.LessOrEqual(t, c.calls()-before, maxCalls+maxCallsPerMIG*len(r.MIGDevices))
	}
	c.pass(time.Second)
	r := c.must("round")
	assert.NotContains(t, r.Values, metrics.FieldUtilization, "NVML has none in MIG mode")
	assert.Contains(t, r.Values, metrics.FieldPowerUsage)
	require.Len(t, r.Processes, 1)
	assert.Equal(t, uint32(working.Process.Pid), r.Processes[0].PID)
	assert.InDelta(t, -1, r.Processes[0].SM, 0)
	for _, m := range r.MIGDevices {
		busy := r.Processes[0].MIG == m.Facts.UUID
		assert.Contains(t, []string{"1g.10gb", "2g.20gb"}, m.Facts.Profile)
		if busy {
			assert.InDelta(t, 0.66, m.Values[metrics.FieldUtilization], 1e-9)
			assert.InDelta(t, (1024+512)<<20, m.Values[metrics.FieldMemoryUsed], 1<<29)
		} else {
			assert.Zero(t, m.Values[metrics.FieldUtilization])
		}
		for f := range metrics.FieldCount {
			_, has := m.Values[f]
			from := metrics.Table[f].SourceOnMIG
			assert.False(t, has && from == "" || !has && from == metrics.SourceNVML, metrics.Table[f].Help) // only some drivers report some fields of GPM
		}
		for _, f := range []metrics.Field{metrics.FieldGraphicsActive, metrics.FieldDRAMActive, metrics.FieldMemoryReserved} {
			assert.Contains(t, m.Values, f)
		}
	}
}

// TestReleaseSamples_SampledInstance_CanBeDestroyed: a session with samples of a GPU instance keeps it in use.
func TestReleaseSamples_SampledInstance_CanBeDestroyed(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80", []string{"-i", "0", "-mig", "1"}, []string{"mig", "-cgi", "19", "-C"})
	c.must("open")
	instance := c.must("round").MIGDevices[0].Facts.GPUInstance
	smi(t, c.node, "mig", "-dci")
	destroyed := func() bool {
		command := c.node.SMI()
		return succeeds(t, c.node, command, "mig", "-dgi")
	}
	assert.False(t, destroyed())
	c.must("release " + strconv.Itoa(instance))
	assert.True(t, destroyed())
	assert.Empty(t, c.must("round").MIGDevices)

	smi(t, c.node, "mig", "-cgi", "19", "-C")
	c.must("round")
	c.must("close")
	smi(t, c.node, "mig", "-dci")
	assert.True(t, destroyed(), "closing frees all samples")
}

func TestNextXID_XIDOfInstance_Reported(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80")
	c.must("open")
	assert.Zero(t, c.must("xid 10").Code)
	require.NoError(t, c.node.Model.PostXID(0, 79))
	r := c.must("xid 5000")
	assert.Equal(t, []any{uint64(79), -1}, []any{r.Code, r.Instance})
	require.NoError(t, c.node.Model.PostXID(0, 31))
	assert.Equal(t, uint64(31), c.must("xid 5000").Code)
}

func TestRound_GPUHangs_ErrorAndNoFurtherCall(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80")
	c.must("deadline 10") // the test waits for it
	c.must("open")
	c.must("round")
	fault, err := c.node.Model.Faults.Add(model.Fault{Effect: model.EffectHang, GPU: 0})
	require.NoError(t, err)
	assert.Contains(t, c.ask("round").Err, "no answer within the deadline")
	before := c.calls()
	assert.Contains(t, c.ask("round").Err, "no answer within the deadline")
	assert.Equal(t, before, c.calls())
	c.node.Model.Faults.Remove(fault)
	require.Eventually(t, func() bool { return c.ask("round").Err == "" }, time.Minute, time.Millisecond)
}

func TestOpen_DriverReloaded_CountersOfTheDriver(t *testing.T) {
	t.Parallel()
	c := samplingOn(t, "h100-80")
	c.must("open")
	c.pass(time.Hour)
	before := c.must("round").Values[metrics.FieldEnergy]
	require.Greater(t, before, 0.)
	c.node.UnloadDriver()
	assert.Contains(t, c.ask("round").Err, "not loaded")
	c.must("close")
	assert.Contains(t, c.ask("open").Err, "not loaded")
	c.node.LoadDriver()
	c.must("open")
	assert.Less(t, c.must("round").Values[metrics.FieldEnergy], before)
}

// TestRound_OldDriver_OnlyItsSymbols: calling a missing function would kill the child.
func TestRound_OldDriver_OnlyItsSymbols(t *testing.T) {
	t.Parallel()
	c := samplingOf(t, model.Spec{Name: "node", Driver: "450.80.02", Boards: []string{"t4"}})
	c.must("open")
	var r read
	for range most {
		r = c.must("round")
	}
	assert.Contains(t, r.Values, metrics.FieldMemoryTotal)
	assert.NotContains(t, r.Values, metrics.FieldMemoryUsed, "without version 2 it would include what is reserved")
	assert.Contains(t, r.Values, metrics.FieldPowerUsage, "by a call of its own where no field value has it")
	assert.Contains(t, r.Values, metrics.FieldClockEventReasons, "by the name that it had")
}

// TestClose_SamplesHeldUntilShutdown_InstanceFree: some drivers release an instance only then.
func TestClose_SamplesHeldUntilShutdown_InstanceFree(t *testing.T) {
	t.Parallel()
	c := samplingOf(t, model.Spec{Name: "node", Boards: []string{"h100-80"}, SampleHold: model.HoldUntilShutdown},
		[]string{"-i", "0", "-mig", "1"}, []string{"mig", "-cgi", "19", "-C"})
	c.must("open")
	instance := c.must("round").MIGDevices[0].Facts.GPUInstance
	smi(t, c.node, "mig", "-dci")
	c.must("release " + strconv.Itoa(instance))
	assert.False(t, succeeds(t, c.node, c.node.SMI(), "mig", "-dgi"))
	c.must("xid 1") // an event set must not keep the library initialised
	c.must("close")
	assert.True(t, succeeds(t, c.node, c.node.SMI(), "mig", "-dgi"))
	c.must("open")
	c.must("round")
}
