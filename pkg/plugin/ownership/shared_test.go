package ownership

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// sharing is a record with an effect on a device of GPU a.
func sharing(uid, device, effect string) *checkpoint.Record {
	r := done(uid, checkpoint.Result{Device: device, GPUUUID: gpuA, ShareID: uid, Extensions: checkpoint.Extensions{"mps": []byte(`{"memoryMiB":1024}`)}})
	r.BootID = "boot-1"
	r.Steps = []checkpoint.Step{{Kind: "mps", Target: gpuA, Device: device, ShareID: uid, Args: []byte(effect)}}
	return r
}

// newer is a record whose effects only a newer version knows.
func newer(t *testing.T, boot, device string) *checkpoint.Record {
	t.Helper()
	body := fmt.Sprintf(`{"claim":{"uid":"b"},"bootID":%q,"state":"later","results":[{"gpuUUID":%q,"device":%q}]}`, boot, gpuA, device)
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	_, err := checkpoint.Decode(fmt.Appendf(nil, "{\"schema\":1,\"crc32c\":\"%08x\",\"len\":%d}\n%s\n", sum, len(body), body))
	var later *checkpoint.NewerError
	require.ErrorAs(t, err, &later)
	return later.Record
}

func TestShared_StepOfOtherClaim_WhereTheSame(t *testing.T) {
	t.Parallel()
	same := func(a, b checkpoint.Step) bool { return string(a.Args) == string(b.Args) }
	earlier := sharing("b", "mps", "x")
	earlier.BootID = "boot-0"
	elsewhere := sharing("b", "mps", "x")
	elsewhere.Results[0].GPUUUID, elsewhere.Steps[0].Target = gpuB, gpuB
	otherKind := sharing("b", "mps", "x")
	otherKind.Steps[0].Kind = "mode"
	undone := sharing("b", "mps", "x")
	undone.State, undone.Steps = checkpoint.Releasing, nil
	for name, c := range map[string]struct {
		other *checkpoint.Record
		want  bool
	}{
		"same effect":                            {sharing("b", "mps", "x"), true},
		"another effect":                         {sharing("b", "mps", "y"), false},
		"the claim itself":                       {sharing("a", "mps", "x"), false},
		"an earlier boot":                        {earlier, false},
		"another GPU":                            {elsewhere, false},
		"another kind":                           {otherKind, false},
		"undone already":                         {undone, false},
		"a newer version's, of that device":      {newer(t, "boot-1", "mps"), true},
		"a newer version's, of any device":       {newer(t, "", ""), true},
		"a newer version's, of another device":   {newer(t, "boot-1", "mig"), false},
		"a newer version's, of an earlier boot":  {newer(t, "boot-0", "mps"), false},
		"a newer version's, of an unknown boot":  {newer(t, "", "mps"), true},
		"a newer version's, of unknown device":   {newer(t, "boot-1", ""), true},
		"another device, unknown boot and newer": {newer(t, "", "mig"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &Guard{Table: newTable(nil)}
			g.Put(c.other)
			r := sharing("a", "mps", "x")
			assert.Equal(t, c.want, g.Shared(r, &r.Steps[0], same))
			g.Remove(c.other.Claim.UID)
			assert.False(t, g.Shared(r, &r.Steps[0], same))
		})
	}
}

// An owner whose record has lost an effect differs: another process has undone it.
func TestDiffering_EffectUndone_Listed(t *testing.T) {
	t.Parallel()
	table := newTable(nil)
	r := sharing("a", "mps", "x")
	r.Steps = append(r.Steps, checkpoint.Step{Kind: "mode", Target: gpuA, Device: "mps"})
	table.Put(r)
	assert.Empty(t, table.Differing([]*checkpoint.Record{r}))
	less := sharing("a", "mps", "x")
	assert.Len(t, table.Differing([]*checkpoint.Record{less}), 1)
}

func TestOthers_DataOfOtherClaims_WhileOwned(t *testing.T) {
	t.Parallel()
	g := &Guard{Table: newTable(nil)}
	held := func() (int, string) {
		found := g.Others(sharing("a", "mps", "x"), gpuA, "mps", "mps")
		for _, data := range found.Data {
			assert.JSONEq(t, `{"memoryMiB":1024}`, string(data))
		}
		assert.Empty(t, g.Others(sharing("a", "mps", "x"), gpuA, "mps", "metrics").Data, "of another extension")
		return len(found.Data), found.Owner.UID
	}
	requireHeld := func(want int, owner string) {
		t.Helper()
		n, by := held()
		require.Equal(t, want, n)
		require.Equal(t, owner, by)
	}
	g.Put(sharing("a", "mps", "x"))
	requireHeld(0, "")
	g.Put(sharing("b", "mps", "x"))
	g.Put(sharing("c", "mps", "x"))
	g.Put(sharing("d", "other", "x"))
	requireHeld(2, "b")
	leaving := sharing("c", "mps", "x")
	leaving.State = checkpoint.Releasing
	g.Put(leaving)
	requireHeld(2, "c")
	for _, left := range []checkpoint.Step{{Device: "other"}, {Device: "mps", ShareID: "another"}} {
		left.Target = gpuA
		leaving.Steps = []checkpoint.Step{left}
		g.Put(leaving)
		requireHeld(1, "b")
	}
	released := g.Others(leaving, gpuA, "mps", "mps").Released
	g.Remove("b")
	<-released
	requireHeld(0, "")
}
