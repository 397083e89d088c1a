package gpus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/usage"
)

const gibi = float64(1 << 30)

// busy is the usage of two nodes; the exporter of the second does not answer.
func busy() (*usage.Usage, map[string]topPlace) {
	load := func(utilization, used, total, power float64) usage.Load {
		l := usage.Load{Utilization: new(utilization), MemoryUsed: new(used * gibi), Power: new(power)}
		if total > 0 {
			l.MemoryTotal = new(total * gibi)
		}
		return l
	}
	pod := func(namespace, name string, load usage.Load, gpus ...string) *usage.Pod {
		return &usage.Pod{Name: usage.Name{Namespace: namespace, Pod: name}, GPUs: gpus, Devices: len(gpus), Load: load}
	}
	u := &usage.Usage{GPUs: map[string]*usage.GPU{
		"G0": {UUID: "G0", Up: new(true), Load: load(.9, 60.2, 79.6, 612)}, "G1": {UUID: "G1", Up: new(true), Load: load(.1, 1, 79.6, 88.4)},
		"G2": {UUID: "G2", Up: new(false)},
	}, Pods: map[usage.Name]*usage.Pod{}}
	shared := load(.25, 2, 0, 0)
	for _, p := range []*usage.Pod{
		pod("ml", "train-0", load(1.75, 120, 159.2, 0), "G0", "G1"), pod("ml", "a-notebook-with-a-rather-long-name-7f9c5d7b6f-x2abc", shared, "G1"),
		pod("web", "chat", usage.Load{}, "G3"), pod("web", "of-another-driver", shared, "G9"), pod("web", "", shared, "G0"),
	} {
		u.Pods[p.Name] = p
	}
	index := func(i int64) *int64 { return &i }
	return u, map[string]topPlace{
		"G0": {"gpu-a07", "gpu-46b93708", "NVIDIA H100 80GB HBM3", index(0)}, "G1": {"gpu-a07", "gpu-581d9886", "NVIDIA H100 80GB HBM3", index(2)},
		"G2": {"gpu-a07", "gpu-84db48e3", "NVIDIA H100 80GB HBM3", index(1)}, "G3": {"gpu-b01", "gpu-c0ffee00", "NVIDIA L40S", nil},
	}
}

// newTop returns a run whose output is out.
func newTop(of string) (*top, *bytes.Buffer) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	t := &top{viewer: &viewer{Connection: cluster.Connection{IOStreams: streams}}, client: &cluster.Client{Namespace: "ml"}, of: of, sort: "name"}
	return t, out
}

func TestTopText_Arguments_Tables(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, of := range []string{topNodes, topGPUs, topPods, topNamespaces} {
		run, _ := newTop(of)
		u, places := busy()
		run.places, run.all = places, of == topPods
		all.WriteString("$ top " + of + "\n" + run.text(run.rows(u)))
	}
	golden(t, "top", all.String())
}

func TestTopText_WideAndSorted_HighestFirst(t *testing.T) {
	t.Parallel()
	u, places := busy()
	run, _ := newTop(topGPUs)
	run.places, run.format, run.sort = places, "wide", "power"
	rows := run.rows(u)
	run.order(rows)
	assert.Equal(t, []string{"G0", "G1", "G2", "G3"}, []string{rows[0].UUID, rows[1].UUID, rows[2].UUID, rows[3].UUID})
	text := run.text(rows)
	assert.Contains(t, text, "UUID")
	run.sort = "utilization"
	run.of = topPods
	rows = run.rows(u)
	run.order(rows)
	require.Len(t, rows, 2, "other namespaces need -A")
	assert.Equal(t, "train-0", rows[0].Pod)
	assert.Equal(t, "No pods with GPUs found.\n", run.text(nil))
}

func TestTopJSON_UnknownValues_Absent(t *testing.T) {
	t.Parallel()
	u, places := busy()
	run, out := newTop(topGPUs)
	run.places = places
	done, err := encode(out, "json", run.rows(u))
	require.NoError(t, err)
	require.True(t, done)
	var rows []map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &rows))
	assert.Equal(t, map[string]any{"node": "gpu-a07", "gpu": "gpu-84db48e3", "index": 1., "uuid": "G2", "product": "NVIDIA H100 80GB HBM3", "up": false}, rows[1])
	assert.InDelta(t, 612, rows[0]["powerWatts"], 0)
}

func TestRepeat_Interval_UntilErrorOrEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		failure := errors.New("silent")
		err := repeat(t.Context(), topInterval, func(context.Context) error {
			if calls++; calls == 3 {
				return failure
			}
			return nil
		})
		assert.Equal(t, failure, err)
		assert.Equal(t, 2*topInterval, time.Since(start))
		ctx, stop := context.WithCancel(t.Context())
		assert.NoError(t, repeat(ctx, topInterval, func(context.Context) error {
			stop()
			return nil
		}))
	})
}
