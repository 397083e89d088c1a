package counting

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// says returns the only condition of a claim.
func (w *world) says(uid string) kube.Condition {
	w.t.Helper()
	all := w.StatusConditions(counted(w.t, uid))
	require.Len(w.t, all, 1)
	assert.Equal(w.t, Condition, all[0].Type)
	return all[0]
}

func TestStatusConditions_EachState_ReasonAndRemedy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.says(uidA)
	assert.Equal(t, []any{false, "Pending"}, []any{first.True, first.Reason})
	assert.Contains(t, first.Message, "prism-collector has not acted yet; if this lasts, check on node n0 the pod of the DaemonSet")
	for reason, c := range map[counters.Reason]struct {
		available bool
		says      []string
	}{
		counters.Waiting:               {true, []string{"kubectl prism profile start"}},
		counters.Recording:             {true, []string{"are recorded."}},
		counters.Ended:                 {true, []string{"has ended"}},
		counters.InsufficientPrivilege: {false, []string{"RmProfilingAdminOnly", "CAP_SYS_ADMIN", "n0", ": its last words."}},
		counters.PerfmonBusy:           {false, []string{"DCGM", "once they are free", ": its last words."}},
		counters.Unsupported:           {false, []string{"does not support", ": its last words."}},
		counters.Failed:                {false, []string{"failed twice", ": its last words."}},
	} {
		w.state(uidA, reason, " its last words.\n")
		got := w.says(uidA)
		assert.Equal(t, []any{c.available, string(reason)}, []any{got.True, got.Reason})
		for _, text := range c.says {
			assert.Contains(t, got.Message, text)
		}
		assert.True(t, strings.HasSuffix(got.Message, ".") && !strings.HasSuffix(got.Message, ".."), got.Message)
		w.state(uidA, reason, "")
		assert.NotContains(t, w.says(uidA).Message, ": .")
	}
	assert.Equal(t, "Pending", w.says(uidB).Reason, "each claim has its own state")
	assert.Nil(t, w.StatusData(&gpu.Node{}, counted(t, uidA), nil))
	assert.Equal(t, []string{w.RefusedCondition()}, w.ConditionTypes())
}

// TestStatusConditions_HostileState_BoundedAndPrintable: a collector that is broken, or broken into, can neither fill a status nor stop the plugin.
func TestStatusConditions_HostileState_BoundedAndPrintable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.state(uidA, counters.Failed, strings.Repeat("\x1b[31m\u202eä\n", 500))
	got := w.says(uidA)
	assert.Equal(t, "Failed", got.Reason)
	assert.Less(t, len(got.Message), 1024)
	for _, r := range got.Message {
		require.True(t, unicode.IsPrint(r), got.Message)
	}
	path := w.path(uidA, counters.StateFile)
	for name, make := range map[string]func() error{
		"too large": func() error {
			return os.WriteFile(path, []byte(`{"reason":"Recording"}`+strings.Repeat(" ", counters.MaxFile)), 0o600)
		},
		"other reason": func() error { return os.WriteFile(path, []byte(`{"reason":"Ready"}`), 0o600) },
		"link":         func() error { return os.Symlink(w.path(uidB, counters.StateFile), path) },
		"pipe":         func() error { return unix.Mkfifo(path, 0o600) },
		"folder":       func() error { return os.Mkdir(path, 0o700) },
		"nothing":      func() error { return nil },
	} {
		w.state(uidB, counters.Recording, "")
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, make())
		assert.Equal(t, "Pending", w.says(uidA).Reason, name)
	}
}

func TestStatusConditions_CollectorOff_SaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.state(uidA, counters.Recording, "")
	w.options.Enabled = false
	got := w.says(uidA)
	assert.Equal(t, []any{false, "CollectorOff"}, []any{got.True, got.Reason})
	assert.Contains(t, got.Message, "profiler.collector.enabled")
	w.Written(counted(t, uidA))
	w.Released(uidA)
	assert.Empty(t, w.events)
}

// TestReleased_LastCondition_Stays: its files are removed while its reports are imported, and these write its status again. Only claims whose
// counters were not available get an Event.
func TestReleased_LastCondition_Stays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, uid := range []string{uidA, uidB} {
		require.NoError(t, w.Ensure(counted(t, uid)))
		w.Written(counted(t, uid))
	}
	w.state(uidA, counters.Recording, "")
	w.state(uidB, counters.PerfmonBusy, "already in use")
	for _, uid := range []string{uidA, uidB} {
		w.Released(uid)
		require.NoError(t, os.RemoveAll(w.path(uid, "")))
		w.Released(uid)
	}
	assert.Equal(t, "Recording", w.says(uidA).Reason)
	assert.Equal(t, "PerfmonBusy", w.says(uidB).Reason)
	require.Len(t, w.events, 1)
	assert.Contains(t, w.events[0], "team/train ProfileIncomplete: PerfmonBusy: Another program")

	require.NoError(t, os.MkdirAll(w.path(uidA, ""), 0o700))
	require.NoError(t, w.Ensure(counted(t, uidA)))
	w.Written(counted(t, uidA))
	assert.Equal(t, "Pending", w.says(uidA).Reason, "it was prepared again")
}

// TestReleased_ManyClaims_Bounded: the claims that were unprepared last stay.
func TestReleased_ManyClaims_Bounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	uid := func(i int) string { return fmt.Sprintf("6f0c1d2e-0000-4000-8000-%012d", i) }
	for i := range 3 * maxEnded {
		r := counted(t, uid(i))
		require.NoError(t, os.MkdirAll(w.path(uid(i), ""), 0o700))
		w.Written(r)
		w.state(uid(i), counters.Recording, "")
		w.Released(uid(i))
		require.NoError(t, os.RemoveAll(filepath.Dir(w.path(uid(i), counters.StateFile))))
	}
	assert.Len(t, w.ended.conditions, maxEnded)
	assert.Len(t, w.ended.order, maxEnded)
	assert.Empty(t, w.claims)
	assert.Equal(t, "Recording", w.says(uid(3*maxEnded-1)).Reason)
	assert.Equal(t, "Pending", w.says(uid(0)).Reason)
}
