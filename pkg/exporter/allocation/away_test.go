package allocation

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestAllocations_NewerRecords_ValuesWithoutNames: this version does not know the meaning of a newer version's record, even if the file can
// be parsed.
func TestAllocations_NewerRecords_ValuesWithoutNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	b := record("b", migDevice("mig", "MIG-1"))
	w.put(record("a", whole("gpu-0")), b)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": b}))
	w.read()
	require.Len(t, w.list(), 2)
	released := 0
	w.tracker.OnReleasing(func(gpu.UUID, string, bool) { released++ })
	path := filepath.Join(w.dir, "plugin/claims/b.json")
	known, err := os.ReadFile(path)
	require.NoError(t, err)
	_, body, found := bytes.Cut(bytes.TrimSuffix(known, []byte("\n")), []byte("\n"))
	require.True(t, found)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for form, newer := range map[string][]byte{
		"schema 3":       fmt.Appendf(nil, "{\"schema\":3,\"crc32c\":\"%08x\",\"len\":%d}\n%s\n", crc32.Checksum(append([]byte("3\n"), body...), castagnoli), len(body), body),
		`state "frozen"`: stateOf(body, castagnoli),
	} {
		require.NoError(t, os.WriteFile(path, newer, 0o600))
		w.read()
		require.Len(t, w.list(), 1, form)
		assert.Equal(t, "a", w.list()[0].ClaimUID)
		assert.Empty(t, w.tracker.Wanted("GPU-0"), form)
		source := w.source(SourceRecords)
		assert.False(t, source.OK)
		assert.Contains(t, source.Error, form)
		assert.Zero(t, released, "the MIG device stays")
		require.NoError(t, os.WriteFile(path, known, 0o600))
		w.read()
		require.Len(t, w.list(), 2)
		assert.Equal(t, []string{"pod/main"}, podsOf(w.list()[1]), "for the version that can read it")
	}
}

// stateOf is a record with a state of a newer version.
func stateOf(body []byte, table *crc32.Table) []byte {
	body = bytes.Replace(body, []byte(`"done"`), []byte(`"frozen"`), 1)
	return fmt.Appendf(nil, "{\"schema\":1,\"crc32c\":\"%08x\",\"len\":%d}\n%s\n", crc32.Checksum(body, table), len(body), body)
}

// TestAllocations_KubeletAwayForLong_NamesStay: only the answer of a kubelet shows which pods are gone.
func TestAllocations_KubeletAwayForLong_NamesStay(t *testing.T) {
	t.Parallel()
	for _, socket := range []bool{true, false} {
		w := newWorld(t, never)
		a := record("a", whole("gpu-0"))
		w.put(a)
		w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
		w.read()
		require.Equal(t, []string{"pod/main"}, podsOf(w.list()[0]))
		path := w.kubeletSocket()
		if socket {
			require.NoError(t, os.Rename(path, path+".kept")) // a server that stops removes its socket
		}
		w.kubelet.stop()
		if socket {
			require.NoError(t, os.Rename(path+".kept", path))
		}
		for range 3 {
			w.tracker.uses.since = w.tracker.uses.since.Add(-2 * never.restarted)
			w.read()
			assert.False(t, w.source(SourcePodResources).OK)
			assert.Equal(t, []string{"pod/main"}, podsOf(w.list()[0]))
		}
	}
}

// TestIdentify_RuntimeAwayRoundAfterRound_NamesStay: the last list remains valid.
func TestIdentify_RuntimeAwayRoundAfterRound_NamesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.runtime.add(id("a"), "pod", "main")
	w.process(7, 1, "x", inPod+id("a"))
	w.read()
	w.runtime.stop()
	for pid := range 3 {
		w.process(20+pid, 1, "x", inPod+id(fmt.Sprint(pid))) // triggers a query
		found := w.tracker.Identify([]uint32{7, uint32(20 + pid)})
		assert.False(t, w.source(SourceCRI).OK)
		assert.Equal(t, metrics.ProcessIdentity{Start: 1, Command: "x", ContainerID: id("a")}, found[7])
		w.read()
		assert.Equal(t, []metrics.Container{{Namespace: "ns", Pod: "pod", Name: "main", PodUID: "uid-of-pod", ID: id("a")}}, w.list()[0].Containers)
	}
}

// TestIdentify_PIDReusedWithinRead_NoOtherContainer: stat belongs to the previous process with the pid, the cgroup to the next one.
func TestIdentify_PIDReusedWithinRead_NoOtherContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	w.runtime.add(id("a"), "pod", "main")
	w.process(7, 1, "former", "/")
	cgroup := filepath.Join(w.dir, "proc/7/cgroup")
	require.NoError(t, os.Remove(cgroup))
	require.NoError(t, syscall.Mkfifo(cgroup, 0o600))
	replaced := make(chan error, 1)
	go func() {
		pipe, err := os.OpenFile(cgroup, os.O_WRONLY, 0) // waits until it is read, after stat
		if err == nil {
			next := fmt.Sprintf("7 (next) S 1 7 7%s 2 0 0\n", strings.Repeat(" 0", 15))
			err = os.WriteFile(filepath.Join(w.dir, "proc/7/stat"), []byte(next), 0o600)
			_, failed := pipe.WriteString("0::" + inPod + id("a") + "\n")
			err = errors.Join(err, failed, pipe.Close())
		}
		replaced <- err
	}()
	assert.Equal(t, map[uint32]metrics.ProcessIdentity{7: {}}, w.tracker.Identify([]uint32{7}), "it exits")
	require.NoError(t, <-replaced)
	require.NoError(t, os.Remove(cgroup))
	w.process(7, 2, "next", inPod+id("a"))
	assert.Equal(t, metrics.ProcessIdentity{Start: 2, Command: "next", ContainerID: id("a")}, w.tracker.Identify([]uint32{7})[7])
}
