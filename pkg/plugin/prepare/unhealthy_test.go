package prepare

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// sick are the problems of GPUs in a test.
type sick map[gpu.UUID][]Problem

// start starts a process on a node with these problems.
func (s sick) start(t *testing.T, w *world) *process {
	t.Helper()
	p := w.process(t)
	options := p.options()
	options.Unhealthy = func(id gpu.UUID) []Problem { return s[id] }
	p.run(options)
	return p
}

func problem(key, value string, effect resourceapi.DeviceTaintEffect) Problem {
	return Problem{
		Taint: resourceapi.DeviceTaint{Key: "gpu.prism.dev/" + key, Value: value, Effect: effect},
		Cause: "GPU X has " + key + " " + value, Fix: "reset it",
	}
}

// tolerating adds tolerations to a claim's results.
func tolerating(rc *resourceapi.ResourceClaim, tolerations ...resourceapi.DeviceToleration) *resourceapi.ResourceClaim {
	for i := range rc.Status.Allocation.Devices.Results {
		rc.Status.Allocation.Devices.Results[i].Tolerations = tolerations
	}
	return rc
}

const refusedForHealth = `request "r0", device gpu-00000001: GPU X has xid 79; reset it (will be retried)`

// TestPrepare_UnhealthyGPU_RefusedAtOnce: nothing is written and nothing waited for, and a later call succeeds once the GPU is repaired.
func TestPrepare_UnhealthyGPU_RefusedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		w.steps = []string{"mode"}
		problems := sick{uuid(1): {problem("xid", "79", resourceapi.DeviceTaintEffectNoSchedule)}}
		p := problems.start(t, w)
		start := time.Now()
		_, err := p.Prepare(t.Context(), wants("a", device(1)))
		require.EqualError(t, err, refusedForHealth)
		refusal, ok := errors.AsType[*claim.Refusal](err)
		require.True(t, ok)
		assert.False(t, refusal.Transient)
		assert.Zero(t, time.Since(start))
		assert.Empty(t, p.retrying)
		assert.Empty(t, w.events())
		w.clean(t)
		_, err = p.Prepare(t.Context(), wants("b", device(0), device(1)))
		require.ErrorContains(t, err, `request "r1", device gpu-00000001: `)
		p.mustPrepare(wants("c", device(0)), "another GPU")

		delete(problems, uuid(1))
		p.mustPrepare(wants("a", device(1)))
	})
}

// TestPrepare_UnhealthyGPU_RecordAnswered: a claim that is prepared keeps its answer, also after a reboot and when its spec is gone; another
// allocation is new.
func TestPrepare_UnhealthyGPU_RecordAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		w.steps = []string{"mode"}
		problems := sick{}
		before := problems.start(t, w).mustPrepare(wants("a", device(1)))
		problems[uuid(1)] = []Problem{problem("xid", "79", resourceapi.DeviceTaintEffectNoExecute)}
		assert.Equal(t, before.CDI, problems.start(t, w).mustPrepare(wants("a", device(1))).CDI)
		delete(w.specs, "a")
		require.NoError(t, whole(w, problems.start(t, w).mustPrepare(wants("a", device(1)))))
		w.reboot("boot-2")
		p := problems.start(t, w)
		require.NoError(t, whole(w, p.mustPrepare(wants("a", device(1)))))

		problems[uuid(0)], problems[uuid(1)] = problems[uuid(1)], nil
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "GPU X has xid 79")
		require.NoError(t, whole(w, w.record(t, "a")))
	})
}

// TestPrepare_UnhealthyGPU_TolerationsAsInTheScheduler: every problem has to be tolerated.
func TestPrepare_UnhealthyGPU_TolerationsAsInTheScheduler(t *testing.T) {
	exists, equal := resourceapi.DeviceTolerationOpExists, resourceapi.DeviceTolerationOpEqual
	for name, c := range map[string]struct {
		tolerations []resourceapi.DeviceToleration
		passes      bool
	}{
		"none":           {nil, false},
		"everything":     {[]resourceapi.DeviceToleration{{Operator: exists}}, true},
		"key":            {[]resourceapi.DeviceToleration{{Key: "gpu.prism.dev/xid", Operator: exists}}, false},
		"both keys":      {[]resourceapi.DeviceToleration{{Key: "gpu.prism.dev/xid", Operator: exists}, {Key: "gpu.prism.dev/maintenance", Operator: exists}}, true},
		"without domain": {[]resourceapi.DeviceToleration{{Key: "xid", Operator: exists}, {Key: "maintenance", Operator: exists}}, false},
		"values": {[]resourceapi.DeviceToleration{
			{Key: "gpu.prism.dev/xid", Operator: equal, Value: "79"}, {Key: "gpu.prism.dev/maintenance"},
		}, true},
		"another value": {[]resourceapi.DeviceToleration{{Key: "gpu.prism.dev/xid", Value: "74"}, {Key: "gpu.prism.dev/maintenance"}}, false},
		"effect":        {[]resourceapi.DeviceToleration{{Operator: exists, Effect: resourceapi.DeviceTaintEffectNoSchedule}}, false},
		"both effects": {[]resourceapi.DeviceToleration{
			{Operator: exists, Effect: resourceapi.DeviceTaintEffectNoSchedule}, {Operator: exists, Effect: resourceapi.DeviceTaintEffectNoExecute},
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(1)
				p := sick{uuid(0): {
					problem("xid", "79", resourceapi.DeviceTaintEffectNoExecute), problem("maintenance", "", resourceapi.DeviceTaintEffectNoSchedule),
				}}.start(t, w)
				_, err := p.Prepare(t.Context(), tolerating(wants("a", device(0)), c.tolerations...))
				assert.Equal(t, c.passes, err == nil, "%v", err)
			})
		})
	}
}

// TestPrepare_UnhealthyGPU_AdminAccessPrepared: the scheduler asks for its tolerations.
func TestPrepare_UnhealthyGPU_AdminAccessPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := sick{uuid(0): {problem("xid", "79", resourceapi.DeviceTaintEffectNoSchedule)}}.start(t, w)
		assert.Equal(t, checkpoint.Done, p.mustPrepare(wants("a", device(0)+"!")).State)
		_, err := p.Prepare(t.Context(), wants("b", device(0)+"!", device(0)))
		require.ErrorContains(t, err, `request "r1"`)
	})
}
