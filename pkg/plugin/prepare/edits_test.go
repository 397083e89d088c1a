package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// contributing is an effect that contributes to specs, status and metrics.
type contributing struct {
	effect
	// pipes is the value of the variable PIPES.
	pipes string
	// err is the reason for the missing edits.
	err error
}

func (c *contributing) Edits(s checkpoint.Step) (cdi.Edits, error) {
	var made struct{ For string }
	if err := json.Unmarshal(s.Made, &made); err != nil {
		return cdi.Edits{}, err
	}
	return cdi.Edits{
		Mounts: []*specs.Mount{{HostPath: "/run/" + made.For, ContainerPath: "/tmp/pipes"}}, Env: map[string]string{"PIPES": c.pipes},
	}, c.err
}

func (c *contributing) Status(s checkpoint.Step) map[string]any {
	return map[string]any{"pipes": c.pipes, s.Kind: string(s.Made)}
}

func (c *contributing) Metrics() []Metric {
	return []Metric{{Name: "prism_" + c.pipes, Read: func() float64 { return 1 }}}
}

// realSpecs builds specs as the product does, of the world's GPUs.
type realSpecs struct {
	specFiles
	builder *cdi.SpecBuilder
}

func (s realSpecs) Build(request cdi.SpecRequest) (*specs.Spec, error) {
	return s.builder.Build(request)
}

// contributingTo starts a process whose claims cause contributing effects of the kinds "mode" and "partition". Missing is a path that does
// not exist on the host.
func contributingTo(t *testing.T, w *world) (p *process, mode, slice *contributing, missing *string) {
	t.Helper()
	w.steps = []string{"mode", "partition"}
	p, missing = w.process(t), new(string)
	mode, slice = &contributing{effect: effect{w}, pipes: "a"}, &contributing{effect: effect{w}, pipes: "a"}
	p.Steps["mode"], p.Steps["partition"] = mode, slice
	p.specs = realSpecs{specFiles{w}, &cdi.SpecBuilder{
		Present:    func() cdi.Present { return cdi.Present{Node: w.node, Common: &specs.ContainerEdits{}, DevRoot: "/"} },
		Monitoring: func() (cdi.DeviceNode, error) { return cdi.DeviceNode{}, gpu.ErrNotFound },
		Stat:       func(string) (int64, int64, error) { return w.major, 0, nil },
		Exists: func(path string) error {
			if path == *missing {
				return fmt.Errorf("%s: %w", path, gpu.ErrNotFound)
			}
			return nil
		},
	}}
	p.run(p.options())
	return p, mode, slice, missing
}

// edited returns the edits of the claim's devices in its spec.
func (w *world) edited(t *testing.T, uid string) (edits []specs.ContainerEdits) {
	t.Helper()
	var spec specs.Spec
	require.NoError(t, json.Unmarshal([]byte(w.specs[uid]), &spec))
	for _, d := range spec.Devices {
		edits = append(edits, d.ContainerEdits)
	}
	return edits
}

func TestPrepare_StepEdits_LandInTheirDevices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p, _, _, _ := contributingTo(t, w)
		p.mustPrepare(wants("a", device(0), device(1), monitor))
		edits := w.edited(t, "a")
		require.Len(t, edits, 3)
		for _, e := range edits[:2] {
			require.Len(t, e.Env, 2, "the mark of the device, and what the step adds")
			assert.Equal(t, "PIPES=a", e.Env[1])
			assert.Equal(t, []*specs.Mount{{HostPath: "/run/a", ContainerPath: "/tmp/pipes", Type: "bind"}}, e.Mounts)
		}
		assert.Empty(t, edits[2].Env, "a monitor device has no effects")
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

func TestPrepare_SpecWithEditsLost_MadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, _, _, _ := contributingTo(t, w)
		p.mustPrepare(wants("a", device(0)))
		spec := w.specs["a"]
		again := map[string]func() error{
			"Prepare": func() error { _, err := p.Prepare(t.Context(), wants("a", device(0))); return err },
			"Recover": func() error { return p.Recover(t.Context()) },
		}
		for name, call := range again {
			w.events()
			require.NoError(t, call())
			assert.Empty(t, w.events(), "%s writes no spec that is there", name)
			delete(w.specs, "a")
			require.NoError(t, call())
			assert.Equal(t, spec, w.specs["a"], name)
		}
	})
}

func TestPrepare_EditsFail_EverythingUndone(t *testing.T) {
	const named = `request "r0", device gpu-00000000: `
	for name, c := range map[string]struct {
		spoil func(mode, slice *contributing, missing *string)
		want  string
	}{
		"step": {
			func(_, slice *contributing, _ *string) { slice.err = errors.New("no pipes") },
			"making the CDI edits of partition on GPU " + string(uuid(0)) + ": no pipes",
		},
		"source": {
			func(_, _ *contributing, missing *string) { *missing = "/run/a" },
			named + "CDI edits of step mode: mount of /tmp/pipes: /run/a: not found (will be retried)",
		},
		"conflict": {
			func(_, slice *contributing, _ *string) { slice.pipes = "b" },
			named + `CDI edits of step partition: variable PIPES is set to "a" by step mode of device a-gpu-00000000-` + string(uuid(0)) +
				` and to "b" by step partition of device a-gpu-00000000-` + string(uuid(0)) + " (not retryable)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(1)
				p, mode, slice, missing := contributingTo(t, w)
				c.spoil(mode, slice, missing)
				_, err := p.Prepare(t.Context(), wants("a", device(0)))
				require.EqualError(t, err, c.want)
				w.clean(t)
				events := w.events()
				assert.Equal(t, []string{
					"undo partition " + string(uuid(0)), "undo mode " + string(uuid(0)), "remove a", "delete a",
				}, events[len(events)-4:])
			})
		})
	}
}

func TestPrepare_EditsFailLater_AnswerKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, mode, _, _ := contributingTo(t, w)
		p.mustPrepare(wants("a", device(0)))
		mode.err = errors.New("no pipes")
		p.mustPrepare(wants("a", device(0)), "its containers may be running with the spec that is there")
		delete(w.specs, "a")
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "no pipes")
		assert.Equal(t, checkpoint.Done, w.record(t, "a").State)
	})
}

func TestSteps_StatusData_PerResult(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, _, slice, _ := contributingTo(t, w)
		r := p.mustPrepare(wants("a", device(0), monitor))
		slice.pipes = "b"
		assert.Equal(t, []map[string]any{
			{"pipes": "a", "mode": `{"for":"a"}`, "partition": `{"for":"a"}`}, nil,
		}, p.Transaction.Steps().StatusData(r), "of two steps that set a key the first one counts")
		assert.Equal(t, []map[string]any{nil}, Steps{"mode": effect{w}}.StatusData(&checkpoint.Record{
			Results: r.Results[:1], Steps: []checkpoint.Step{{Kind: "mode", Target: uuid(0)}, {Kind: "unknown"}},
		}))
	})
}

func TestSteps_Metrics_InOrderOfKinds(t *testing.T) {
	t.Parallel()
	metrics := Steps{"z": &contributing{pipes: "z"}, "a": &contributing{pipes: "a"}, "m": effect{}}.Metrics()
	require.Len(t, metrics, 2)
	assert.Equal(t, []string{"prism_a", "prism_z"}, []string{metrics[0].Name, metrics[1].Name})
	assert.InDelta(t, 1, metrics[0].Read(), 0)
}
