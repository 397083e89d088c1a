package prepare

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// TestMonitor_OfEarlierVersion_StaysAndGoes: a claim that was prepared with the monitor device of one GPU keeps its answer and is unprepared.
func TestMonitor_OfEarlierVersion_StaysAndGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		former := device(0) + "-monitor"
		rc := wants("see", former)
		rc.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
		p := w.start(t)
		answer := &checkpoint.Record{
			Claim: checkpoint.Claim{UID: "see", Namespace: "default", Name: "claim-see"}, BootID: w.boot, State: checkpoint.Done,
			Results: []checkpoint.Result{{Request: "r0", Pool: nodeName, Device: former, Admin: true, Type: gpu.TypeMonitor, GPUUUID: uuid(0)}},
			CDI:     checkpoint.CDI{Kind: cdi.Kind(driverName), Devices: []string{"see-" + former + "-admin-" + string(uuid(0))}},
		}
		require.NoError(t, records{w}.Put(answer))
		w.events()
		r := p.mustPrepare(rc)
		assert.Equal(t, answer.CDI.Devices, r.CDI.Devices)
		assert.Equal(t, []string{"write see"}, w.events(), "its spec was gone")
		require.NoError(t, p.Unprepare(t.Context(), "see"))
		w.clean(t)
		_, err := p.Prepare(t.Context(), rc)
		require.ErrorContains(t, err, "does not advertise it now")
	})
}
