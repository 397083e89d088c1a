package hostfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHolders_OpenDevice_ProcessesListed with the pod and the container of each.
func TestHolders_OpenDevice_ProcessesListed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	process := func(pid int, program, cgroup string, open ...string) {
		dir := filepath.Join(root, "proc", fmt.Sprint(pid))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "fd"), 0o700))
		for n, path := range open {
			require.NoError(t, os.Symlink(path, filepath.Join(dir, "fd", fmt.Sprint(n))))
		}
		require.NoError(t, os.Symlink("/usr/bin/"+program, filepath.Join(dir, "exe")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(program+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600))
	}
	id, inner := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	process(10, "python", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-containerd-"+
		id+".scope/"+inner+"\n", "/dev/null", "/dev/nvidia1")
	process(9, "nvtop", "0::/user.slice\n", "/dev/nvidia1")
	process(11, "other", "0::/\n", "/dev/nvidia10", "/dev/nvidiactl", "socket:[1]")
	process(12, "cgroupfs", "5:cpu:/kubepods/pod1b4e28ba-2fa1-11d2-883f-0016d3cca427/"+id+"\n", "/dev/nvidia1")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/13"), 0o700)) // it exits

	found, err := New(root).Holders(t.Context(), "/dev/nvidia1")
	require.NoError(t, err)
	const pod = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
	assert.Equal(t, []Holder{
		{PID: 9, Program: "nvtop", Command: "nvtop"},
		{PID: 10, Program: "python", Command: "python", Container: id, PodUID: pod},
		{PID: 12, Program: "cgroupfs", Command: "cgroupfs", Container: id, PodUID: pod},
	}, found)

	for pid := range 300 {
		process(1000+pid, "many", "", "/dev/nvidia1")
	}
	found, err = New(root).Holders(t.Context(), "/dev/nvidia1")
	require.NoError(t, err)
	assert.Len(t, found, mostHolders)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = New(root).Holders(ended, "/dev/nvidia1")
	require.ErrorIs(t, err, context.Canceled)
	_, err = New(filepath.Join(root, "none")).Holders(t.Context(), "/dev/nvidia1")
	require.Error(t, err)
}
