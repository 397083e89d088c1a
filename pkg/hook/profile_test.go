package hook_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const injected = "/run/prism/container/libprism-beside-libasan.so\n"

// bundle is the bundle of a container whose mounts are complete.
type bundle struct {
	dir    string
	config map[string]any
	args   []string
	hook   string
	// users are the ids of the container's user namespace; nil for the host's user namespace.
	users []syscall.SysProcIDMap
}

func newBundle(t *testing.T) *bundle {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for mount namespaces")
	}
	b := &bundle{dir: t.TempDir(), hook: os.Args[0], args: []string{"--claim", "uid", "--node", "node-a", "--inbox", "/inbox"}, config: map[string]any{
		"process": map[string]any{"args": []string{"python3", "a.py"}, "cwd": "/", "env": []string{"PATH=/usr/bin"}},
		"root":    map[string]any{"path": "rootfs"},
		"annotations": map[string]string{
			"io.kubernetes.cri.sandbox-name": "pod-a", "io.kubernetes.cri.sandbox-namespace": "ns", "io.kubernetes.cri.container-name": "main",
		},
	}}
	for _, dir := range []string{"run/prism/container", "run/prism/results", "run/prism/plan", "etc", "tmp", "usr/bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(b.dir, "rootfs", dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "rootfs/run/prism/plan/run"), []byte("version=1\x00claim=uid\x00"), 0o644))
	return b
}

// prepare runs setup, the hook and check in the root of the container, in a new mount namespace, and returns the output of check and of the
// hook.
func (b *bundle) prepare(t *testing.T, setup, check string) string {
	t.Helper()
	text, err := json.Marshal(b.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "config.json"), text, 0o644))
	script := `set -e
mount --bind "$0" "$0"; cd "$0"
mount -t tmpfs own run/prism/container
` + setup + `
set +e
hook() { printf %s "$STATE" | HOOK_TEST_PROC=/proc "$HOOK" profile "$@"; }
hook "$@" || echo "exit $?"
` + check + "\ntrue"
	command := exec.CommandContext(t.Context(), "unshare", append([]string{
		"--mount", "--propagation", "private", "sh", "-c", script, filepath.Join(b.dir, "rootfs"),
	}, b.args...)...)
	command.Env = append(os.Environ(), "HOOK="+b.hook, "STATE="+stateOf(t, os.Getpid(), b.dir))
	if b.users != nil {
		command.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: b.users, GidMappings: b.users, Credential: &syscall.Credential{NoSetGroups: true},
		}
	}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	assert.NoFileExists(t, "/etc/ld.so.preload")
	return string(output)
}

func TestProfile_NoList_LibraryLoaded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	output := b.prepare(t, "", `cat etc/ld.so.preload run/prism/container/context; readlink run/prism/container/lib*
touch etc/ld.so.preload 2>&1 | sed 's/.*: //'; stat -c "%a %n" run/prism/container/*; ls -A run/prism/results`)
	want := injected + "claim=uid\npod=pod-a\nnamespace=ns\ncontainer=main\nnode=node-a\nlocalInit=N\n/run/prism/programs/libprism-inject.so\nRead-only file system\n" +
		"644 run/prism/container/context\n644 run/prism/container/ld.so.preload\n777 run/prism/container/libprism-beside-libasan.so\n" +
		"1777 run/prism/container/pipes\n"
	for _, i := range strings.Fields("0 1 10 11 12 13 14 15 2 3 4 5 6 7 8 9") {
		want += "444 run/prism/container/slot-" + i + "\n"
	}
	assert.Equal(t, want, regexp.MustCompile(`localInit=\d+`).ReplaceAllString(output, "localInit=N"))
	first := b.prepare(t, "", `test "$(grep localInit run/prism/container/context)" = "localInit=$$" && echo same`)
	assert.Equal(t, "same\n", first, "the first process is the hook's parent, whatever pid the state has")
	left, err := os.ReadFile(filepath.Join(b.dir, "rootfs/etc/ld.so.preload"))
	require.NoError(t, err)
	assert.Empty(t, left, "the mount is the container's")
}

func TestProfile_OwnList_LibraryLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setup, list, want string }{
		"of the image":      {"printf 'libjemalloc.so.2\n' >etc/ld.so.preload", "etc/ld.so.preload", "libjemalloc.so.2\n" + injected},
		"without a newline": {"printf liba.so >etc/ld.so.preload", "etc/ld.so.preload", "liba.so\n" + injected},
		"of a volume": {
			"mkdir ../v; echo libv.so >../v/list; touch etc/ld.so.preload; mount --bind ../v/list etc/ld.so.preload", "etc/ld.so.preload",
			"libv.so\n" + injected,
		},
		"in a volume at etc": {
			"mkdir ../v; echo libv.so >../v/ld.so.preload; mount --bind ../v etc", "etc/ld.so.preload", "libv.so\n" + injected,
		},
		"a link":         {"mkdir opt; echo libl.so >opt/list; ln -s /opt/list etc/ld.so.preload", "opt/list", "libl.so\n" + injected},
		"a link upwards": {"echo libu.so >list; ln -s ../../../../../../list etc/ld.so.preload", "list", "libu.so\n" + injected},
		"etc is a link":  {"rmdir etc; mkdir -p private/etc; ln -s /private/etc etc", "private/etc/ld.so.preload", injected},
		"no etc":         {"rmdir etc", "etc/ld.so.preload", injected},
		"the library":    {"echo " + strings.TrimSpace(injected) + " >etc/ld.so.preload", "etc/ld.so.preload", injected},
		"a comment":      {"echo '# " + strings.TrimSpace(injected) + "' >etc/ld.so.preload", "etc/ld.so.preload", "# " + injected + injected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, newBundle(t).prepare(t, c.setup, "cat "+c.list))
		})
	}
}

// TestProfile_ListNotPossible_ContainerStarts: it starts without the library, with a note of the reason.
func TestProfile_ListNotPossible_ContainerStarts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setup, want string }{
		"volume at etc":  {"mkdir -p ../v; mount --bind ../v etc", "a volume is mounted at /etc"},
		"a folder":       {"mkdir -p etc/ld.so.preload", "is not a regular file"},
		"a pipe":         {"rm -f etc/ld.so.preload; mkfifo etc/ld.so.preload", "is not a regular file"},
		"a broken link":  {"ln -sfn /none etc/ld.so.preload", "it is a link to a file that does not exist"},
		"links in rings": {"ln -sfn ld.so.preload etc/ld.so.preload", "too many levels of symbolic links"},
		"a long list":    {"head -c 100000 /dev/zero >etc/ld.so.preload", "it is larger than 65536 bytes"},
		"through proc":   {"mount -t proc p tmp; ln -sfn /tmp/self/root/etc/passwd etc/ld.so.preload", "too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			output := b.prepare(t, c.setup, `cat run/prism/results/s*/note; ls -A ../v 2>/dev/null; grep -c ld.so.preload /proc/self/mountinfo`)
			assert.Contains(t, output, "reason=PreloadNotPossible\n")
			assert.Contains(t, output, c.want)
			assert.NotContains(t, output, "exit")
			assert.Regexp(t, "\nstate=Failed\n0\n$", output)

			b.args = append(b.args, "--fail-closed")
			output = b.prepare(t, c.setup, "")
			assert.Contains(t, output, "preparing the container for the profiler: /etc/ld.so.preload: ")
			assert.Contains(t, output, c.want)
			assert.Contains(t, output, "\nexit 1\n")
		})
	}
}

// TestProfile_RootElsewhere_NothingChanged: whatever the bundle contains, nothing outside of it is opened for writing.
func TestProfile_RootElsewhere_NothingChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, setup, want string }{
		"none":           {"", "", "must be a clean path below the bundle"},
		"the bundle":     {".", "", "must be a clean path below the bundle"},
		"upwards":        {"../other", "mkdir -p ../../other/etc", "must be a clean path below the bundle"},
		"upwards inside": {"rootfs/../../other", "", "must be a clean path below the bundle"},
		"the host":       {"/", "", "neither below the bundle nor the working directory"},
		"elsewhere":      {"/usr", "", "neither below the bundle nor the working directory"},
		"a link":         {"linked", "ln -sfn / ../linked", "too many levels of symbolic links"},
		"below a link":   {"linked/usr", "ln -sfn / ../linked", "too many levels of symbolic links"},
		"missing":        {"none", "", "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.config["root"] = map[string]any{"path": c.path}
			const check = "ls -A etc run/prism/container run/prism/results ../../other/etc 2>/dev/null | grep -v : | grep .; grep -c ld.so.preload /proc/self/mountinfo"
			assert.Equal(t, "0\n", b.prepare(t, c.setup, check))
			b.args = append(b.args, "--fail-closed")
			assert.Contains(t, b.prepare(t, c.setup, ""), c.want)
		})
	}
}
