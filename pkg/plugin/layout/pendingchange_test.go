package layout

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// pending is the Event about GPUs whose layout changes wait.
func pending(gpus string) string {
	return "Warning GPULayoutChangePending Configure: GPU layout change pending for 10 minutes: waiting for devices of " + gpus + " to be released. " +
		"Running pods keep them, and claims that tolerate the config-change taint can be allocated them again, which delays the change for ever. " +
		"Find the claims by the names of their devices: " + findClaims
}

func TestPendingChange_DevicesInUseForTenMinutes_IsReportedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held func(d *fixture)
		want []string
	}{
		"prepared":                    {func(d *fixture) { d.records = append(d.records, holds("n0", first)) }, []string{pending("GPU 0 (" + first + ")")}},
		"allocated, not prepared":     {func(d *fixture) { d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true} }, []string{pending("GPU 0 (" + first + ")")}},
		"both GPUs":                   {func(d *fixture) { d.records = append(d.records, holds("n0", first), d.holdsSecond()) }, []string{pending("GPU 0 (" + first + "), GPU 1 (" + second + ")")}},
		"the API server has no taint": {func(d *fixture) { d.untainted = true }, nil},
		"free":                        {func(*fixture) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, onlyWhole)
				stop := d.runs(t)
				defer stop()
				after(2 * retryFirst)
				c.held(d)
				d.entries = partitionedAndShared
				d.Reload()
				after(remindAfter - time.Second)
				assert.Empty(t, d.events())
				after(time.Minute)
				assert.Equal(t, c.want, d.events())
				after(time.Hour)
				assert.Empty(t, d.events(), "once")
			})
		})
	}
}

// TestPendingChange_TolerantClaims_AreReported: each is released in time, and the next one is there by then.
func TestPendingChange_TolerantClaims_AreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		for range 11 {
			d.records = append(d.records[:0:0], holds("n0", first))
			after(59 * time.Second)
			d.records, d.allocated = nil, map[gpu.PoolDevice]bool{wholeOfFirst: true}
			after(time.Second)
			d.allocated = nil
		}
		assert.Equal(t, []string{pending("GPU 0 (" + first + ")")}, d.events())
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		d.records, d.entries = append(d.records, holds("n0", first)), onlyBig
		d.Reload()
		after(remindAfter + time.Minute)
		assert.Len(t, d.events(), 1, "of another change again")
	})
}

func TestPendingChange_ManyGPUs_FitsAnEvent(t *testing.T) {
	t.Parallel()
	gpus := "GPU 0 (" + first + ")"
	for range 15 {
		gpus += ", GPU 15 (" + first + ")"
	}
	assert.LessOrEqual(t, len(pending(gpus)), 1024, "a longer note of an Event is truncated")
}
