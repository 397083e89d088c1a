package maintenance_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
)

func TestMaintain_Annotations_Passed(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		synctest.Wait()
		assert.Nil(t, w.maintained, "before the Node is read, findings stay")
		p.annotate(map[string]string{maintain + "gpu-5d3f61a2": "fan"})
		assert.Equal(t, map[gpu.UUID]string{first: "fan"}, w.maintained)
		p.annotate(map[string]string{maintain + "all": "move", maintain + "gpu-5d3f61a2": "fan"})
		assert.Equal(t, map[gpu.UUID]string{first: "fan", second: "move"}, w.maintained)
		w.mu.Lock()
		w.gpus, w.unknown = nil, errors.New("no driver")
		close(w.replaced)
		w.replaced = make(chan struct{})
		w.mu.Unlock()
		synctest.Wait()
		assert.Equal(t, map[gpu.UUID]string{first: "fan", second: "move"}, w.maintained, "without a driver, maintenance stays")
		p.annotate(nil)
		assert.Empty(t, w.maintained)
		assert.Empty(t, w.take())
	})
}

// TestMaintain_GPUAppears_InMaintenance: nothing is reported before the GPUs are known.
func TestMaintain_GPUAppears_InMaintenance(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.unknown = errors.New("no driver")
		p.annotate(map[string]string{maintain + "gpu-5d3f61a2": "fan", maintain + "gpu-00000000": "gone"})
		assert.Empty(t, w.take())
		w.mu.Lock()
		w.unknown = nil
		close(w.replaced)
		w.replaced = make(chan struct{})
		w.mu.Unlock()
		assert.Equal(t, []string{
			"GPUCommandInvalid: Annotation " + maintain + "gpu-00000000 of the node is ignored: the node has no GPU with that name",
		}, w.take())
		assert.Equal(t, map[gpu.UUID]string{first: "fan"}, w.maintained)
	})
}

func TestInvalid_SameValue_ReportedOnce(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		bad := map[string]string{heal + "gpu-5d3f61a2": "soon"}
		p.annotate(bad)
		assert.Len(t, w.take(), 1)
		p.annotate(bad)
		assert.Empty(t, w.take())
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": "later"})
		assert.Len(t, w.take(), 1, "another value")
		p.annotate(nil)
		p.annotate(bad)
		assert.Len(t, w.take(), 1, "it was removed meanwhile")
	})
}

// TestInvalid_Standby_ReportedByLeader: the leading process writes the Events.
func TestInvalid_Standby_ReportedByLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": "soon", maintain + "gpu-00000000": ""})
		p.Node(maintenance.Node{Conditions: []maintenance.Condition{{Type: "C", Status: "True", Message: "0000:00:00.0"}}})
		assert.Empty(t, w.take())
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": "soon"})
		defer p.lead(t)()
		assert.Len(t, w.take(), 1)
	})
}

func TestInvalid_ThousandsOfAnnotations_FewEvents(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		many := map[string]string{}
		for n := range 5000 {
			many[fmt.Sprintf("%sgpu-%08x", maintain, n)] = ""
		}
		p.annotate(many)
		log := w.take()
		require.Len(t, log, 17)
		assert.Equal(t, "GPUCommandInvalid: 4984 more annotations of the node are ignored", log[16])
		p.annotate(many)
		assert.Empty(t, w.take())
	})
}

func TestHeal_EachValue_Once(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": "2000-01-01T00:00:00Z"})
		assert.Equal(t, []string{"heal " + string(first) + " 2000-01-01T00:00:00Z"}, w.take())
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": "2000-01-01T00:00:00Z", maintain + "all": ""})
		assert.Empty(t, w.take())
		w.refused[first] = errors.New("the driver asks for a reset")
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": "2000-01-01T00:00:01Z"})
		assert.Equal(t, []string{
			"heal " + string(first) + " 2000-01-01T00:00:01Z",
			"GPUHealRefused: GPU gpu-5d3f61a2 (" + string(first) + ") is not healed: the driver asks for a reset",
		}, w.take())
	})
}

// TestHeal_FarAhead_Invalid: it would end errors that occur later.
func TestHeal_FarAhead_Invalid(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		for range 2 {
			p.annotate(map[string]string{heal + "gpu-5d3f61a2": "2999-01-01T00:00:00Z"})
		}
		assert.Equal(t, []string{
			"GPUCommandInvalid: Annotation " + heal + "gpu-5d3f61a2 of the node is ignored: its time is more than 10 minutes ahead",
		}, w.take())
	})
}

// TestHeal_Restarted_RefusalNotRepeated: an old annotation is followed again, as an earlier process may not have.
func TestHeal_Restarted_RefusalNotRepeated(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.refused[first] = errors.New("no finding began before")
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": in(-time.Hour)})
		assert.Len(t, w.take(), 1)
	})
}

// TestHeal_BeginsToLead_Repeated: the monitor has read the findings of an earlier process then.
func TestHeal_BeginsToLead_Repeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(t, "plugin", disk.OS{})
		defer p.stop()
		p.annotate(map[string]string{heal + "gpu-5d3f61a2": in(0)})
		assert.Len(t, w.take(), 1)
		w.refused[first] = errors.New("no finding began before")
		defer p.lead(t)()
		assert.Len(t, w.take(), 1, "healed before: no refusal")
	})
}

func TestConditions_Texts_TaintNamedGPUs(t *testing.T) {
	t.Parallel()
	both := map[gpu.UUID][]string{first: {"GpuXidError"}, second: {"GpuXidError"}}
	one := map[gpu.UUID][]string{second: {"GpuXidError"}}
	for text, want := range map[string]map[gpu.UUID][]string{
		"":                                      both,
		"some GPU has fallen off":               both,
		"at 12:30:00.000: XID 79":               both,
		"NVRM: Xid (PCI:0000:af:00): 79, pid=1": one,
		"XID at 00000000:AF:00.0.":              one,
		"0000:af:00.0":                          one,
		"gpu=0000:AF:00.0,xid=79":               one,
		"GPU " + string(second) + ": XID 79":    one,
		"uuid:gpu-7E001122-1111-2222-3333-444444444444, 0000:00:00.0": one,
		string(first) + "," + string(second):                          both,
		"0000:af:00.0 0000:3b:00.0":                                   both,
		"0000:af:00.1":                                                nil,
		"0001:af:00.0":                                                nil,
		"00010000:af:00.0":                                            nil,
		"GPU-7e001122-1111-2222-3333-444444444445":                    nil,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			leader(t, func(t *testing.T, w *world, p *process) {
				condition := maintenance.Condition{Type: "GpuXidError", Status: "True", Reason: "XID", Message: text}
				p.Node(maintenance.Node{Conditions: []maintenance.Condition{condition}})
				log := w.take()
				if want == nil {
					assert.Empty(t, w.conditions)
					require.Len(t, log, 1)
					assert.Contains(t, log[0], "NodeConditionUnmatched: Condition GpuXidError of the node names only GPUs that the node does not have")
				} else {
					assert.Equal(t, want, w.conditions)
					assert.Empty(t, log)
				}
				p.Node(maintenance.Node{Conditions: []maintenance.Condition{condition}, Annotations: map[string]string{maintain + "all": ""}})
				assert.Empty(t, w.take(), "reported once")
				p.Node(maintenance.Node{Conditions: []maintenance.Condition{{Type: "GpuXidError", Status: "False", Message: text}}})
				assert.Empty(t, w.take())
				assert.Empty(t, w.conditions)
			})
		})
	}
}

// A part of a longer identifier names no GPU of the node, and no other GPU: it is no identifier.
func TestConditions_PartsOfIdentifiers_NotMatched(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"x" + string(second), string(second) + "0", string(second) + "-1", "MIG-" + string(second), "10000:af:00.0", "0000:af:00.00", "0000:af:000",
		"12:0000:af:00.0", "0000:af:00:01", "0000:af:00.0.1", "000000000:af:00.0",
	} {
		leader(t, func(t *testing.T, w *world, p *process) {
			p.Node(maintenance.Node{Conditions: []maintenance.Condition{{Type: "C", Status: "True", Message: text + " and " + string(first)}}})
			assert.Empty(t, w.take())
			assert.Equal(t, map[gpu.UUID][]string{first: {"C"}}, w.conditions, text)
		})
	}
}

func TestConditions_Unknown_StaysAsBefore(t *testing.T) {
	t.Parallel()
	leader(t, func(t *testing.T, w *world, p *process) {
		w.findings = []finding.Finding{{GPU: second, Key: finding.NodeCondition, Value: "A"}, {GPU: second, Key: finding.XID, Value: "79"}}
		state := func(a, b string) map[gpu.UUID][]string {
			p.Node(maintenance.Node{Conditions: []maintenance.Condition{{Type: "A", Status: a, Message: string(first)}, {Type: "B", Status: b}}})
			assert.Empty(t, w.take())
			return w.conditions
		}
		assert.Equal(t, map[gpu.UUID][]string{second: {"A"}}, state("Unknown", "Unknown"), "the finding of an earlier process")
		assert.Equal(t, map[gpu.UUID][]string{first: {"A", "B"}, second: {"B"}}, state("True", "True"))
		assert.Equal(t, map[gpu.UUID][]string{first: {"A", "B"}, second: {"B"}}, state("Unknown", "Unknown"))
		assert.Equal(t, map[gpu.UUID][]string{first: {"A"}}, state("Unknown", "False"))
		assert.Equal(t, map[gpu.UUID][]string{first: {"A"}}, state("Unknown", "Unknown"))
		assert.Empty(t, state("False", "False"))
	})
}
