package prepare

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// ofNewerSchema is the file of a record whose body a newer version has written in its schema.
func ofNewerSchema(body []byte) []byte {
	sum := crc32.Checksum(append([]byte("3\n"), body...), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "{\"schema\":3,\"crc32c\":\"%08x\",\"len\":%d}\n%s\n", sum, len(body), body)
}

// releasingOf is a claim's record as a newer version writes it after it released the first of two GPUs: the effects that remain on the
// other one are in a field that this version does not read.
func releasingOf(t *testing.T, r *checkpoint.Record) []byte {
	t.Helper()
	r.State = checkpoint.Releasing
	file, err := checkpoint.Encode(r)
	require.NoError(t, err)
	_, text, found := strings.Cut(strings.TrimSpace(string(file)), "\n")
	require.True(t, found)
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &body))
	steps, ok := body["steps"].([]any)
	require.True(t, ok)
	body["steps"], body["effects"] = steps[:1], steps[1:]
	more, err := json.Marshal(body)
	require.NoError(t, err)
	return ofNewerSchema(more)
}

// TestRecord_NewerVersion_LeftAlone: it is not answered from, not undone and not lost. Effects on its GPUs are kept from other claims, even
// if this version sees nothing left to undo, other GPUs work as before, and the pod may end.
func TestRecord_NewerVersion_LeftAlone(t *testing.T) {
	const again = " of its record: run that version, or a later one, on this node again"
	for name, c := range map[string]struct {
		newer func(t *testing.T, r *checkpoint.Record) []byte
		says  string
		// cleanup: this version sees a pending cleanup.
		cleanup bool
	}{
		"state": {
			func(t *testing.T, r *checkpoint.Record) []byte {
				t.Helper()
				return rewritten(t, r, `"done"`, `"frozen"`)
			},
			`version test of the plugin prepared the claim, and this version does not know state "frozen"` + again, false,
		},
		"schema with keys of this version": {
			releasingOf, "version test of the plugin prepared the claim, and this version does not know schema 3" + again, true,
		},
		"schema with other keys": {
			func(*testing.T, *checkpoint.Record) []byte {
				return ofNewerSchema(fmt.Appendf(nil, `{"claim":{"uid":"a","namespace":"default","name":"claim-a"},"state":["releasing"],"steps":{},`+
					`"results":[{"gpuUUID":%q},{"gpuUUID":%q}]}`, uuid(0), uuid(1)))
			},
			"a newer version of the plugin prepared the claim, and this version does not know schema 3" + again, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(3)
				w.steps, w.finds = []string{"mode", "partition"}, true
				w.start(t).mustPrepare(wants("a", device(0), device(1)))
				known := w.records["a"]
				newer := c.newer(t, w.record(t, "a"))
				w.records["a"] = newer
				w.events()

				p := w.start(t)
				assert.Empty(t, p.damaged)
				assert.Equal(t, [][]gpu.UUID{{uuid(0), uuid(1)}}, p.pendingGPUs, "both get a taint")
				require.EqualError(t, p.Recover(t.Context()), "recovering claim a: "+c.says)
				for i := range 2 {
					_, err := p.Prepare(t.Context(), wants(fmt.Sprintf("b%d", i), device(i)))
					require.ErrorContains(t, err, "(will be retried)")
					if c.cleanup {
						require.Contains(t, fmt.Sprint(LogValues(err)...), "default/claim-a", "GPU %d", i)
						continue
					}
					heldBy(t, err, "a")
				}
				p.mustPrepare(wants("c", device(2)), "other GPUs go on")
				require.NoError(t, p.Unprepare(t.Context(), "c"))
				w.events()
				_, err := p.Prepare(t.Context(), wants("a", device(0), device(1)))
				require.EqualError(t, err, c.says)
				removed, err := p.collect(t.Context(), nil, true)
				assert.Empty(t, removed)
				require.ErrorContains(t, err, "a newer version prepared claim a and alone knows its effects")

				require.EqualError(t, p.Unprepare(t.Context(), "a"), c.says)
				time.Sleep(deferCleanupAfter - time.Second)
				require.EqualError(t, p.Unprepare(t.Context(), "a"), c.says, "the pod is kept")
				time.Sleep(time.Second)
				require.NoError(t, p.Unprepare(t.Context(), "a"), "the pod may go")
				assert.Empty(t, w.events(), "nothing is undone, removed or written")
				assert.Equal(t, string(newer), string(w.records["a"]))
				assert.NotEmpty(t, w.effects[uuid(0)])
				assert.Equal(t, [][]gpu.UUID{{uuid(0), uuid(1)}}, p.pendingGPUs)

				w.records["a"] = known // as the newer version sees it
				require.NoError(t, w.start(t).Unprepare(t.Context(), "a"))
				w.clean(t)
			})
		})
	}
}
