package allocation

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// TestIdentify_MPSServers_KnownByTheServiceAlone: neither the name, nor the pid of an earlier process, nor a parent of that name is a
// proof.
func TestIdentify_MPSServers_KnownByTheServiceAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	const (
		daemon, recorded, lazy, earlier, ofClient, adopted, renamed = 10, 11, 12, 13, 14, 15, 16
	)
	process := func(pid, start, parent int, command string) {
		w.process(pid, uint64(start), command, "/system.slice/mps.service")
		w.file(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0\n", pid, command, parent, start))
	}
	process(daemon, 100, 1, "nvidia-cuda-mps")
	process(recorded, 101, 1, state.Command)
	process(lazy, 102, daemon, state.Command)
	process(earlier, 103, 1, state.Command)
	process(ofClient, 104, adopted, state.Command)
	process(adopted, 105, 1, state.Command)
	process(renamed, 106, 1, "python3")
	dir := filepath.Join(w.dir, "run/gpu.prism.dev/mps")
	write := func(id, state string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, id), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, id, "state"), []byte(state), 0o600))
	}
	all := []uint32{daemon, recorded, lazy, earlier, ofClient, adopted, renamed}
	servers := func() (pids []uint32) {
		found := w.tracker.Identify(all)
		require.Len(t, found, len(all))
		for _, pid := range all {
			if found[pid].Server {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	assert.Empty(t, servers(), "the node has no MPS service")
	write("aaaaaaaa", `{"daemon": {"pid": 10, "start": 100}, "processes": [{"pid": 11, "start": 101}, {"pid": 13, "start": 1}], "further": true}`)
	write("bbbbbbbb", `{`)
	write("cccccccc", `{"daemon": {"pid": 0, "start": 0}}`)
	assert.Equal(t, []uint32{recorded, lazy}, servers())
	write("aaaaaaaa", `{"daemon": {"pid": 10, "start": 99}}`)
	assert.Empty(t, servers(), "another process has the daemon's pid")
	require.NoError(t, os.RemoveAll(dir))
	assert.Empty(t, servers())
}
