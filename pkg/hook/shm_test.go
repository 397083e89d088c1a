package hook_test

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// client is a container with an MPS share. A shell acts as the node's runtime, in its own mount namespace.
type client struct {
	dir, shm, socket string
	// mounts are the mounts of the container's configuration.
	mounts []map[string]any
	// namespaces are further namespaces of the container, as options of unshare.
	namespaces []string
	// uncovered: the runtime mounted nothing over the volume.
	uncovered bool
}

// sandboxID is the runtime's name for the sandbox of the pod.
const sandboxID = "4f2a"

func newClient(t *testing.T) *client {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for mount namespaces")
	}
	dir, err := os.MkdirTemp("", "hook-") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &client{dir: dir, shm: filepath.Join(dir, "shm"), socket: filepath.Join(dir, "hook.sock"), namespaces: []string{"--ipc"}}
	for _, dir := range []string{c.shm, filepath.Join(dir, "rootfs/dev/shm")} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	c.mount("/dev", "tmpfs", "tmpfs")
	return c
}

func (c *client) mount(destination, kind, source string, options ...string) {
	c.mounts = append(c.mounts, map[string]any{"destination": destination, "type": kind, "source": source, "options": options})
}

// volume adds a volume at /dev/shm to the container's configuration, followed by the file system of MPS clients.
func (c *client) volume(destination, source string) *client {
	c.mount(destination, "bind", source, "rbind", "rw")
	c.mount("/dev/.//shm", "", c.shm, "rw", "rbind")
	return c
}

// run mounts the file systems of the container, with these mount options for the volume, and runs the hook. It returns the output of the
// hook, and the sources of the mounts at /dev/shm afterwards, the last on top.
func (c *client) run(t *testing.T, volume string) string {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"root": map[string]any{"path": "rootfs"}, "mounts": c.mounts,
		"annotations": map[string]string{
			"io.kubernetes.cri.sandbox-id": sandboxID, "io.kubernetes.cri.sandbox-name": "pod-a", "io.kubernetes.cri.container-name": "main",
		},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "config.json"), config, 0o600))
	const script = `set -e
cd "$0"; mkfifo ready go
mount -t tmpfs -o size=1g mps shm; mkdir shm/in; mount -t tmpfs -o ro injection shm/in
unshare --mount --propagation private $NAMESPACES sh -c '
	set -e; cd "$0/rootfs"; mount --rbind . .; cd "$0/rootfs"
	mount -t tmpfs -o $VOLUME volume dev/shm; $COVER; echo >../ready; read -r _ <../go
	awk -v at="$0/rootfs/dev/shm" '\''index($5, at) == 1 {print $(NF-1)}'\'' /proc/self/mountinfo' "$0" &
read -r _ <ready
printf '{"pid": %d, "bundle": "%s"}' $! "$0" | HOOK_TEST_PROC=/proc "$HOOK" "$@" || echo "exit $?"
echo >go; wait
test "$(ls shm)" = in`
	cover := "mount --rbind ../shm dev/shm"
	if c.uncovered {
		cover = "true"
	}
	command := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, c.dir},
		exclusiveArgs(c.socket, c.shm)...)...)
	command.Env = append(os.Environ(), "HOOK="+os.Args[0], "VOLUME="+volume, "COVER="+cover)
	for i, option := range c.namespaces {
		if i == 0 {
			command.Env = append(command.Env, "NAMESPACES="+option)
			continue
		}
		command.Env[len(command.Env)-1] += " " + option
	}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	return string(output)
}

const (
	emptyDir = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/shm"
	covered  = "volume\nmps\ninjection\n"
	tooSmall = "the pod's volume at /dev/shm has size 64Mi, and a container that uses a GPU with MPS requires 1Gi there: " +
		"set sizeLimit of the volume to 1Gi or more, or remove it from the container"
)

// TestExclusive_VolumeAtShm_KeptIfLargeEnough: also with the mounts of a user namespace, and of a path that a tenant spells differently.
func TestExclusive_VolumeAtShm_KeptIfLargeEnough(t *testing.T) {
	t.Parallel()
	refused := tooSmall + "\nexit 1\nvolume\n"
	for name, c := range map[string]struct {
		destination, source, size string
		namespaces                []string
		want                      string
	}{
		"of the size":               {"/dev/shm", emptyDir, "size=1g", nil, "volume\n"},
		"larger":                    {"/dev/shm", emptyDir, "size=16g", nil, "volume\n"},
		"without a size":            {"/dev/shm", emptyDir, "size=0", nil, "volume\n"},
		"smaller":                   {"/dev/shm", emptyDir, "size=64m", nil, refused},
		"a page smaller":            {"/dev/shm", emptyDir, "size=1073737728", nil, "the pod's volume at /dev/shm has size 1048572Ki, and"},
		"spelled otherwise":         {"/dev//shm/", emptyDir, "size=64m", nil, refused},
		"a directory of the host":   {"/dev/shm", "/dev/shm", "size=64m", nil, refused},
		"another pod's sandbox":     {"/dev/shm", "/run/containerd/sandboxes/0000/shm", "size=64m", nil, refused},
		"in a user namespace":       {"/dev/shm", emptyDir, "size=2g", []string{"--user", "--map-root-user"}, "volume\n"},
		"small in a user namespace": {"/dev/shm", emptyDir, "size=64m", []string{"--user", "--map-root-user"}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t).volume(c.destination, c.source)
			client.namespaces = append(client.namespaces, c.namespaces...)
			assert.Contains(t, client.run(t, c.size), c.want)
		})
	}
}

// TestExclusive_ShmOfRuntime_Covered: clients share their file system, because most pods mount no volume there.
func TestExclusive_ShmOfRuntime_Covered(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"containerd": "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/" + sandboxID + "/shm",
		"CRI-O":      "/run/containers/storage/overlay-containers/" + sandboxID + "/userdata/shm",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, covered, newClient(t).volume("/dev/shm", source).run(t, "size=64m"))
		})
	}
	t.Run("hostIPC", func(t *testing.T) {
		t.Parallel()
		c := newClient(t).volume("/dev/shm", "/dev/shm")
		c.namespaces = nil
		assert.Equal(t, covered, c.run(t, "size=64m"))
	})
	t.Run("a volume below", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, covered, newClient(t).volume("/dev/shm/cache", emptyDir).run(t, "size=64m"))
	})
	t.Run("no bind mount", func(t *testing.T) {
		t.Parallel()
		c := newClient(t)
		c.mount("/dev/shm", "tmpfs", "shm", "nosuid")
		assert.Equal(t, covered, c.run(t, "size=64m"))
	})
}

// TestExclusive_NotMountedOver_Refused: a runtime that orders mounts differently has not covered the volume.
func TestExclusive_NotMountedOver_Refused(t *testing.T) {
	t.Parallel()
	c := newClient(t).volume("/dev/shm", emptyDir)
	c.uncovered = true
	assert.Equal(t, "keeping the volume of the container at /dev/shm: the file system of MPS clients is not mounted over it\nexit 1\nvolume\n", c.run(t, "size=2g"))
}

// TestExclusive_Refusal_Reported: for the status of the claim, in the words of the pod's events.
func TestExclusive_Refusal_Reported(t *testing.T) {
	t.Parallel()
	c := newClient(t).volume("/dev/shm", emptyDir)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: c.socket})
	require.NoError(t, err)
	require.NoError(t, listener.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = listener.Close() })
	assert.Contains(t, c.run(t, "size=64m"), tooSmall)
	connection, err := listener.AcceptUnix()
	require.NoError(t, err)
	line, err := bufio.NewReader(connection).ReadBytes('\n')
	require.NoError(t, err)
	var refusal protocol.Refusal
	require.NoError(t, json.Unmarshal(line, &refusal))
	assert.Equal(t, protocol.Refusal{
		LimitedDevice: protocol.LimitedDevice{Claim: "uid", Device: device}, Refused: `container "main" of pod "pod-a": ` + tooSmall,
	}, refusal)
	require.NoError(t, connection.Close())
}
