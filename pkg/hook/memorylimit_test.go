package hook_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/hook"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// TestMemoryLimit_Cgroup_OfUnifiedHierarchyOnly: the plugin is not asked about other cgroups.
func TestMemoryLimit_Cgroup_OfUnifiedHierarchyOnly(t *testing.T) {
	t.Parallel()
	const unified = "limits of GPU memory require a host with cgroup v2 only (systemd.unified_cgroup_hierarchy=1)"
	for name, c := range map[string]struct{ cgroup, want string }{
		"unified":          {"0::/kubepods/pod1/c1\n", "no limit after 0s"},
		"without a line":   {"", unified},
		"version 1":        {"2:memory:/kubepods/c1\n1:cpu:/kubepods/c1\n", unified},
		"both":             {"2:memory:/kubepods/c1\n0::/kubepods/c1\n", unified},
		"both, other way":  {"0::/kubepods/c1\n2:memory:/kubepods/c1\n", unified},
		"of the host":      {"0::/\n", `the cgroup "/" of process 4711 does not belong to a container`},
		"above a root":     {"0::/../other/c1\n", `the cgroup "/../other/c1" of process 4711 does not belong to a container`},
		"not clean":        {"0::/kubepods//c1\n", `the cgroup "/kubepods//c1" of process 4711 does not belong to a container`},
		"relative":         {"0::kubepods/c1\n", `the cgroup "kubepods/c1" of process 4711 does not belong to a container`},
		"more than a file": {"0::/" + strings.Repeat("x", 64<<10) + "\n", "it is larger than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(proc, "4711"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(proc, "4711", "cgroup"), []byte(c.cgroup), 0o600))
			require.ErrorContains(t, limit(t, proc, 4711), c.want)
		})
	}
}

func TestMemoryLimit_NoProcess_Refused(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	require.ErrorContains(t, limit(t, proc, 0), "the OCI state contains pid 0")
	require.ErrorContains(t, limit(t, proc, -1), "the OCI state contains pid -1")
	require.ErrorContains(t, limit(t, proc, 4711), "no such file or directory")
}

// limit runs without a plugin.
func limit(t *testing.T, proc string, pid int) error {
	t.Helper()
	return hook.Program{Stdin: strings.NewReader(stateOf(t, pid, bundleOf(t))), Proc: proc, Pause: time.Millisecond}.
		Run([]string{"memory-limit", "--socket", filepath.Join(proc, "hook.sock"), "--claim", "uid", "--device", device})
}

// TestMemoryLimit_Others_OfAllHooks: hooks before and after its own, of other claims at this plugin, and no others.
func TestMemoryLimit_Others_OfAllHooks(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hook-") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "hook.sock")
	arguments := func(socket, claim string) []string {
		return []string{"prism-hook", "memory-limit", "--socket", socket, "--claim", claim, "--device", device + "-of-" + claim}
	}
	type called struct {
		Path string   `json:"path"`
		Args []string `json:"args"`
	}
	ours := func(args ...string) called { return called{"/var/lib/prism/prism-hook", args} }
	text, err := json.Marshal(map[string]any{"hooks": map[string]any{"createRuntime": []called{
		ours(arguments(socket, "before")...), {"/usr/bin/other", arguments(socket, "other-program")}, ours("prism-hook", "exclusive", "--device", "a"),
		ours("prism-hook"), ours(arguments(socket, "own")...), ours("prism-hook", "memory-limit", "--unknown"),
		ours(arguments("/other.sock", "other-plugin")...), ours(arguments(socket, "own")...), ours(arguments(socket, "after")...), ours(arguments(socket, "last")...),
	}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "4711"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "4711", "cgroup"), []byte("0::/kubepods/c1\n"), 0o600))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	asked := make(chan protocol.LimitRequest, 1)
	go func() {
		connection, err := listener.Accept()
		if !assert.NoError(t, err) {
			close(asked)
			return
		}
		defer func() { _ = connection.Close() }()
		var request protocol.LimitRequest
		assert.NoError(t, json.NewDecoder(connection).Decode(&request))
		_, err = connection.Write([]byte("{}\n"))
		assert.NoError(t, err)
		asked <- request
	}()
	program := hook.Program{Stdin: strings.NewReader(stateOf(t, 4711, dir)), Proc: dir, Pause: time.Millisecond, RetryBudget: time.Minute}
	require.NoError(t, program.Run(arguments(socket, "own")[1:]))
	of := func(claim string) protocol.LimitedDevice {
		return protocol.LimitedDevice{Claim: claim, Device: device + "-of-" + claim}
	}
	assert.Equal(t, protocol.LimitRequest{
		LimitedDevice: of("own"), Cgroup: "/kubepods/c1", Others: []protocol.LimitedDevice{of("before"), of("after"), of("last")},
	}, <-asked)
}
