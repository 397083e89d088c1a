package prepare

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// findable is an effect that can be listed.
type findable struct {
	effect
	kind string
}

func (f findable) Find(ctx context.Context) (found []checkpoint.Step, err error) {
	err = f.op("find "+f.kind, unlessEnded(ctx, func() error {
		for id, set := range f.effects {
			if args, there := set[f.kind]; there {
				found = append(found, checkpoint.Step{Target: id, Args: json.RawMessage(args)})
			}
		}
		return nil
	}))
	return found, err
}

func (findable) Names(recorded, found checkpoint.Step) bool {
	return string(recorded.Args) == string(found.Args)
}

// crowded is a node with a claim of two effects that is prepared on the first GPU, and one on the second whose record was
// damaged.
func crowded(t *testing.T) (*world, *process) {
	t.Helper()
	w := newWorld(3)
	w.steps, w.finds = []string{"mode", "partition"}, true
	p := w.start(t)
	for i, uid := range []string{"kept", "lost"} {
		p.mustPrepare(wants(uid, device(i)))
	}
	w.records["lost"] = nil
	w.events()
	return w, p
}

func names(leaks []gc.Leak) []string {
	var names []string
	for _, o := range leaks {
		names = append(names, string(o.Kind)+": "+o.String())
	}
	return names
}

func TestCollect_Leaks_Removed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		for _, half := range []string{"record kept", "record died", "spec kept", "spec died"} {
			w.halves[half] = true
		}
		w.specs["never recorded"] = "{}"
		removed := p.mustCollect(nil, true)
		on := " on GPU " + string(uuid(1))
		assert.Equal(t, []string{
			"spec: CDI spec of claim lost", "spec: CDI spec of claim never recorded", "effect: mode" + on, "effect: partition" + on,
			"file: unfinished record of claim died", "file: unfinished record of claim kept",
			"file: unfinished CDI spec of claim died", "file: unfinished CDI spec of claim kept",
		}, names(removed))
		assert.Equal(t, []string{
			"remove lost", "remove never recorded", "undo mode " + string(uuid(1)), "undo partition " + string(uuid(1)),
			"discard record died", "discard record kept", "discard spec died", "discard spec kept",
		}, w.events())
		require.NoError(t, whole(w, w.record(t, "kept")), "what has an owner is whole")
		assert.Empty(t, w.halves)
		assert.Len(t, p.damaged, 1, "a record that was set aside is reported")

		removed = p.mustCollect(nil, true)
		assert.Empty(t, removed)
		assert.Empty(t, w.events(), "nothing is left to do")
		require.NoError(t, p.Unprepare(t.Context(), "kept"))
		w.clean(t)
	})
}

// TestCollect_DevicesInUse_Kept: a damaged record fails no container that runs.
func TestCollect_DevicesInUse_Kept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		removed := p.mustCollect([]string{"kept-gpu-1", "lost-gpu-2"}, true)
		assert.Empty(t, removed)
		assert.Empty(t, w.events())
		removed = p.mustCollect([]string{"kept-gpu-1"}, true)
		assert.Len(t, removed, 3, "the pod has ended: %v", removed)
	})
}

// TestCollect_IncompleteList_LostClaimsKept: the kubelet's list may be empty because it has just been started.
func TestCollect_IncompleteList_LostClaimsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		require.NoError(t, p.Recover(t.Context()))
		w.specs["leaked"] = "a spec of a claim that never had a record"
		w.events()
		removed := p.mustCollect(nil, false)
		assert.Len(t, removed, 1, "%v", removed)
		assert.Contains(t, w.specs, "lost")
		assert.Len(t, w.effects[w.node.GPUs[1].UUID], 2)
		removed = p.mustCollect(nil, true)
		assert.Len(t, removed, 3, "%v", removed)
	})
}

// TestCollect_LockedClaimsAndGPUs_LeftAlone: the claim's and the GPU's locks are held by a writer.
func TestCollect_LockedClaimsAndGPUs_LeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		delete(w.records, "lost")
		delete(w.specs, "lost")
		w.specs["busy"] = "{}"
		w.halves["record busy"], w.halves["record kept"] = true, true
		unlockClaim, err := p.Claim(t.Context(), "busy")
		require.NoError(t, err)
		unlockGPUs, _, err := p.GPUs(t.Context(), []gpu.UUID{uuid(0), uuid(1)})
		require.NoError(t, err)
		start := time.Now()
		removed := p.mustCollect(nil, true, "held locks are no error")
		assert.Empty(t, removed)
		assert.Empty(t, w.events())
		assert.LessOrEqual(t, time.Since(start), 4*gc.BusyAfter)

		unlockClaim()
		unlockGPUs()
		removed = p.mustCollect(nil, true)
		assert.Len(t, removed, 5, "%v", removed)
	})
}

// TestCollect_ChangedBeforeLock_ReadAgain: until the collector holds the lock, a leaked effect may get an owner or go.
func TestCollect_ChangedBeforeLock_ReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		record := rewritten(t, w.record(t, "kept"), "kept", "lost", string(uuid(0)), string(uuid(1)))
		delete(w.records, "lost")
		w.halves["spec written"], w.specs["removed"] = true, "{}"
		effects := w.effects[uuid(1)]
		p.taking = func(lock string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch lock {
			case "claim lost":
				w.records["lost"] = record
			case "claim written":
				delete(w.halves, "spec written")
			case "claim removed":
				delete(w.specs, "removed")
			}
		}
		removed := p.mustCollect(nil, true)
		assert.Empty(t, removed)

		delete(w.records, "lost")
		delete(w.specs, "lost")
		p.taking = func(lock string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if lock == string(uuid(1)) {
				w.records["lost"] = record
			}
		}
		w.events()
		removed = p.mustCollect(nil, true)
		assert.Empty(t, removed)
		assert.Empty(t, w.events())
		assert.Len(t, effects, 2)
	})
}

// TestCollect_DependentEffects_UndoneInWorkingOrder: the order in which leaked effects were made is not known.
func TestCollect_DependentEffects_UndoneInWorkingOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		w.refuse = func(op string) error {
			if _, above := w.effects[uuid(1)]["partition"]; above && strings.HasPrefix(op, "undo mode") {
				return fmt.Errorf("a partition is on it: %w", gpu.ErrInUse)
			}
			return nil
		}
		removed := p.mustCollect(nil, true)
		assert.Len(t, removed, 3)
		assert.Empty(t, w.effects[uuid(1)])
	})
}

// TestCollect_UnknownOwners_NothingUndone: the effects of some records are not known.
func TestCollect_UnknownOwners_NothingUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, p := crowded(t)
		w.hidden = "kept"
		removed, err := p.collect(t.Context(), nil, true)
		require.ErrorIs(t, err, checkpoint.ErrUnreadable)
		assert.Equal(t, []string{"spec: CDI spec of claim lost"}, names(removed))
		require.Contains(t, w.specs, "kept", "a spec whose record is not given now")

		w.hidden = ""
		old := w.record(t, "kept")
		w.records["kept"] = rewritten(t, old, `"done"`, `"frozen"`)
		w.halves["record kept"] = true
		removed, err = p.collect(t.Context(), nil, true)
		require.ErrorContains(t, err, "a newer version prepared claim kept and alone knows its effects")
		assert.Empty(t, removed)

		old.BootID = "boot-0"
		require.NoError(t, records{w}.Put(old))
		removed = p.mustCollect(nil, true)
		assert.Len(t, removed, 5, "a record of an earlier boot owns no effects: %v", removed)
	})
}

func TestCollect_Errors_NameWhatStays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for refused, want := range map[string]string{
			"list specs":     "input/output error",
			"remove":         "removing leaked CDI spec of claim lost: input/output error",
			"list halves of": "input/output error\ninput/output error",
			"discard":        "removing leaked unfinished CDI spec of claim died: input/output error",
			"find mode":      "finding leaked mode: input/output error",
			"undo mode":      "undoing leaked mode on GPU " + string(uuid(1)) + ": input/output error",
			"load lost":      "removing leaked CDI spec of claim lost: input/output error",
		} {
			w, p := crowded(t)
			w.halves["spec died"] = true
			w.refuse = always(refused, errDisk)
			removed, err := p.collect(t.Context(), nil, true)
			require.EqualError(t, err, want, refused)
			assert.NotEmpty(t, removed, "the others are taken away, %s", refused)
		}
	})
}

// TestCollect_NothingLeaked_OnlyReads and reads as much with many claims as it must: one list of everything.
func TestCollect_NothingLeaked_OnlyReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(8)
		w.steps, w.finds = []string{"mode"}, true
		p := w.start(t)
		for i := range 8 {
			p.mustPrepare(wants(fmt.Sprintf("c%d", i), device(i)))
		}
		p.taking = func(lock string) { assert.Fail(t, "a lock is asked for", lock) }
		w.journal = nil
		removed := p.mustCollect(nil, true)
		assert.Empty(t, removed)
		assert.Equal(t, []string{
			"list specs", "all", "find mode", "find partition", "all", "list halves of a record ", "list halves of a spec ",
		}, w.journal)
	})
}

// rewritten is a record file in which every first of these pairs is replaced by its second.
func rewritten(t *testing.T, r *checkpoint.Record, pairs ...string) []byte {
	t.Helper()
	file, err := checkpoint.Encode(r)
	require.NoError(t, err)
	_, body, found := strings.Cut(strings.TrimSpace(string(file)), "\n")
	require.True(t, found)
	body = strings.NewReplacer(pairs...).Replace(body)
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "{\"schema\":1,\"crc32c\":\"%08x\",\"len\":%d}\n%s\n", sum, len(body), body)
}

// TestRecover_CleanupsOfAnotherProcess_Reported, and that they are finished.
func TestRecover_CleanupsOfAnotherProcess_Reported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		leader := w.start(t)
		other := prepared(t, w)
		require.NoError(t, leader.Recover(t.Context()))
		claims, _ := leader.Counts()
		assert.Equal(t, 1, claims, "it learns of claims, too")
		require.Error(t, other.Unprepare(t.Context(), "a"))
		assert.Empty(t, leader.pendingGPUs)
		require.Error(t, leader.Recover(t.Context()))
		assert.Equal(t, [][]gpu.UUID{{uuid(0)}}, leader.pendingGPUs)

		w.refuse = nil
		require.NoError(t, other.Unprepare(t.Context(), "a"))
		require.NoError(t, leader.Recover(t.Context()))
		assert.Equal(t, [][]gpu.UUID{{uuid(0)}, nil}, leader.pendingGPUs, "no other claim would ever request that GPU")
		w.clean(t)

		w.journal, leader.taking = nil, func(lock string) { assert.Fail(t, "a lock is asked for", lock) }
		require.NoError(t, leader.Recover(t.Context()))
		assert.Equal(t, []string{"all"}, slices.Clone(w.journal), "what is known costs one list")
	})
}

// TestRecover_UnreadableRecord_KnownOwnersKept because the disk does not give a record now.
func TestRecover_UnreadableRecord_KnownOwnersKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		w.hidden = "a"
		require.ErrorIs(t, p.Recover(t.Context()), checkpoint.ErrUnreadable)
		_, err := p.Prepare(t.Context(), wants("b", device(0)))
		heldBy(t, err, "a")
	})
}
