package prepare

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestClaim_EachKind_OperationsInOrder from Prepare to Unprepare: effects are made between intent and done, a claim without effects costs one
// durable write, and a repeated Prepare only reads, in another process, too.
func TestClaim_EachKind_OperationsInOrder(t *testing.T) {
	plain := func() *migDriver { return &migDriver{world: newWorld(2), there: map[string]gpu.MIGUUID{}} }
	withEffects := func() *migDriver { c := plain(); c.steps = []string{"mode", "partition"}; return c }
	partitionable := func() *migDriver { _, c := newPartitionable(2); return c }
	preCreated := func() *migDriver { c := partitionable(); c.administer(7, "MIG-theirs", true); return c }
	shared := func() *migDriver { _, c := newShared(false); return c }
	const (
		pool   = nodeName + "/gpu-00000000"
		id     = "GPU-00000000-0000-4000-8000-000000000000"
		effect = `{"for":"a"}`
	)
	written, removed := []string{"put done a", "write a"}, []string{"remove a", "delete a"}
	first := func(request, pool string) checkpoint.Result {
		return checkpoint.Result{Request: request, Pool: pool, Device: device(0), Type: gpu.TypeGPU, GPUUUID: id, PCIBusID: "0000:00:00.0"}
	}
	second := checkpoint.Result{Request: "r0", Pool: nodeName, Device: device(1), Type: gpu.TypeGPU, GPUUUID: uuid(1), PCIBusID: "0000:01:00.0"}
	ofMIG := func(name string, made checkpoint.MIG) checkpoint.Result {
		r := first("r0", pool)
		r.Device, r.Type, r.MIG = migName(name), gpu.TypeMIG, &made
		return r
	}
	oneShare := first("r0", pool)
	oneShare.Device, oneShare.Type, oneShare.ShareID, oneShare.Share = share, gpu.TypeTimeSlice, "a0", &checkpoint.Share{Replicas: 3, Name: "gpu-shared"}
	for name, c := range map[string]struct {
		driver                      func() *migDriver
		rc                          *claimObject
		results                     []checkpoint.Result
		cdi                         []string
		prepared, again, unprepared []string
		made                        []string // of each step
	}{
		"GPUs": {
			driver: plain, rc: wants("a", device(1), device(0)), results: []checkpoint.Result{second, first("r1", nodeName)},
			cdi:      []string{"a-" + device(1) + "-" + string(uuid(1)), "a-" + device(0) + "-" + id},
			prepared: written, unprepared: removed,
		},
		"a GPU with effects": {
			driver: withEffects, rc: wants("a", device(0)), results: []checkpoint.Result{first("r0", nodeName)}, cdi: []string{"a-" + device(0) + "-" + id},
			prepared:   []string{"put intent a", "do mode " + id, "do partition " + id, "put done a", "write a"},
			unprepared: []string{"put releasing a", "undo partition " + id, "undo mode " + id, "remove a", "delete a"},
			made:       []string{effect, effect},
		},
		"a GPU that is advertised as MIG devices too is inspected once": {
			driver: partitionable, rc: wantsOf("a", ""), results: []checkpoint.Result{first("r0", pool)}, cdi: []string{"a-" + device(0) + "-" + id},
			prepared: append([]string{"ensure noMIGMode " + id}, written...), unprepared: removed,
		},
		"a GPU that is advertised whole, beside that one": {
			driver: partitionable, rc: wants("a", device(1)), results: []checkpoint.Result{second}, cdi: []string{"a-" + device(1) + "-" + string(uuid(1))},
			prepared: written, unprepared: removed,
		},
		"a share costs as much as a whole GPU": {
			driver: shared, rc: wantsShare("a", share), results: []checkpoint.Result{oneShare}, cdi: []string{"a-" + share + "-a0-" + id},
			prepared: append([]string{"ensure noMIGMode " + id}, written...), unprepared: removed,
		},
		"a MIG device, after which the mode stays": {
			driver: partitionable, rc: wantsOf("a", "9-4"), cdi: []string{"a-" + migName("9-4") + "-MIG-9-4"},
			results: []checkpoint.Result{ofMIG("9-4", checkpoint.MIG{
				Profile: 9, Name: "3g.40gb", Placement: gpu.Placement{Start: 4, Size: 4},
				Identity: gpu.MIGIdentity{GPUInstance: 3, ComputeInstance: 1, UUID: "MIG-9-4"},
			})},
			prepared:   []string{"ensure migMode " + id, "check 9-4", "put intent a", "make 9-4", "fill 9-4", "put done a", "write a"},
			again:      []string{"verify 9-4"},
			unprepared: []string{"put releasing a", "undo 9-4, made MIG-9-4", "remove a", "delete a"},
			made:       []string{`{"gpuInstance":3,"computeInstance":1,"uuid":"MIG-9-4"}`},
		},
		"a MIG device of an administrator": {
			driver: preCreated, rc: wantsOf("a", "19-6"), cdi: []string{"a-" + migName("19-6") + "-MIG-theirs"},
			results: []checkpoint.Result{ofMIG("19-6", checkpoint.MIG{
				Profile: 19, Name: "1g.10gb", Placement: gpu.Placement{Start: 6, Size: 1}, Static: true,
				Identity: gpu.MIGIdentity{GPUInstance: 7, UUID: "MIG-theirs"},
			})},
			prepared: append([]string{"inspect 19-6"}, written...), again: []string{"inspect 19-6"}, unprepared: removed,
		},
		// Its record names no GPU, so that work on a GPU is not affected by it.
		"the monitor": {
			driver: plain, rc: wants("a", monitor), cdi: []string{"a-monitor-admin"},
			results:  []checkpoint.Result{{Request: "r0", Pool: nodeName + "/monitor", Device: "monitor", Admin: true, Type: gpu.TypeMonitor}},
			prepared: written, unprepared: removed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := c.driver()
				p, there := d.startWithMIG(t), maps.Clone(d.there)
				r := p.mustPrepare(c.rc)
				assert.Equal(t, c.prepared, d.events())
				assert.Equal(t, d.record(t, "a"), r, "the answer is the record")
				var made []string
				for _, s := range r.Steps {
					made = append(made, string(s.Made))
				}
				assert.Equal(t, c.made, made)
				assert.Equal(t, &checkpoint.Record{
					Claim: checkpoint.Claim{UID: "a", Namespace: "default", Name: "claim-a"}, BootID: "boot-1", Writer: "test", State: checkpoint.Done,
					Results: c.results, Steps: r.Steps, CDI: checkpoint.CDI{Kind: "k8s.gpu.prism.dev/claim", Devices: c.cdi},
				}, r)
				for _, process := range []*process{p, d.startWithMIG(t)} {
					assert.Equal(t, r, process.mustPrepare(c.rc))
					assert.ElementsMatch(t, c.again, d.events(), "a repeated Prepare only reads")
				}
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				assert.Equal(t, c.unprepared, d.events())
				assert.Equal(t, there, d.there, "only what was made for the claim is removed")
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				d.clean(t)
			})
		})
	}
}
