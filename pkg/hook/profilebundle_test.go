package hook_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProfile_RootOutside_WorkingDirectory: the root of CRI-O is outside of the bundle, and the runtime starts the hook in it.
func TestProfile_RootOutside_WorkingDirectory(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	outside := filepath.Join(t.TempDir(), "merged")
	b.config["root"] = map[string]any{"path": outside}
	b.config["annotations"] = map[string]string{
		"io.kubernetes.pod.name": "pod-b", "io.kubernetes.pod.namespace": "ns-b", "io.kubernetes.container.name": "other",
	}
	output := b.prepare(t, "mkdir "+outside+"; mount --rbind . "+outside+"; cd "+outside, "cat etc/ld.so.preload; head -4 run/prism/container/context")
	assert.Equal(t, injected+"claim=uid\npod=pod-b\nnamespace=ns-b\ncontainer=other\n", output)
}

// TestProfile_UserNamespace_Profiled: root of a user namespace may search the bundle, but not list it, as with containerd.
func TestProfile_UserNamespace_Profiled(t *testing.T) {
	t.Parallel()
	const mapped = 100000
	b := newBundle(t)
	b.users = []syscall.SysProcIDMap{{HostID: mapped, Size: 65536}}
	own, err := os.Executable()
	require.NoError(t, err)
	raw, err := os.ReadFile(own)
	require.NoError(t, err)
	b.hook = filepath.Join(b.dir, "hook")
	require.NoError(t, os.WriteFile(b.hook, raw, 0o755))
	require.NoError(t, filepath.WalkDir(filepath.Join(b.dir, "rootfs"), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, mapped, mapped))
	}))
	require.NoError(t, os.Chown(b.dir, 0, mapped))
	require.NoError(t, os.Chmod(b.dir, 0o710))
	require.NoError(t, os.Chmod(filepath.Dir(b.dir), 0o711))
	b.args = append(b.args, "--fail-closed")
	assert.Equal(t, injected, b.prepare(t, "", "cat etc/ld.so.preload"))
}

// TestProfile_SharedMount_Refused: mounts in a volume that the pod shares with the host would appear on the host.
func TestProfile_SharedMount_Refused(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.args = append(b.args, "--fail-closed")
	const setup = "mkdir ../v; touch ../v/ld.so.preload; mount --bind ../v ../v; mount --make-shared ../v; mount --bind ../v etc"
	output := b.prepare(t, setup, "cat ../v/ld.so.preload etc/ld.so.preload")
	assert.Contains(t, output, "uses mountPropagation Bidirectional")
	assert.NotContains(t, output, injected)
}

// TestProfile_HostRoot_Refused: even if it is the working directory.
func TestProfile_HostRoot_Refused(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.config["root"] = map[string]any{"path": "/"}
	b.args = append(b.args, "--fail-closed")
	assert.Contains(t, b.prepare(t, "cd /", ""), `the root "/" of the container is the root of the host`)
}

func TestProfile_OwnFolder_TmpfsOnly(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	assert.Equal(t, "0\n", b.prepare(t, "umount run/prism/container", "ls -A run/prism/container; grep -c ld.so.preload /proc/self/mountinfo"))
	b.args = append(b.args, "--fail-closed")
	assert.Contains(t, b.prepare(t, "umount run/prism/container", ""), "opening /run/prism/container of the container: it is not a tmpfs")
}

func TestProfile_ReadOnlyRoot_TemporaryFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		readOnly    bool
		setup, want string
	}{
		"read-only":            {true, "", "tmpfs 1777\n"},
		"no folder":            {true, "rmdir tmp", "tmpfs 1777\n"},
		"writable":             {false, "", "755\n"},
		"with a volume":        {true, "mkdir ../v; mount --bind ../v tmp", "755\n"},
		"a link in the root":   {true, "rmdir tmp; mkdir -p var/tmp; ln -s var/tmp tmp", "tmpfs 1777\n"},
		"a link into a volume": {true, "rmdir tmp; mkdir -p var ../v/tmp; mount --bind ../v var; ln -s var/tmp tmp", "755\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.config["root"] = map[string]any{"path": "rootfs", "readonly": c.readOnly}
			const check = `if grep -q "/tmp .* prism " /proc/self/mountinfo; then printf "tmpfs "; fi; stat -L -c %a tmp; cat etc/ld.so.preload`
			assert.Equal(t, c.want+injected, b.prepare(t, c.setup, check))
		})
	}
}

func TestProfile_Containers_SelectedOnly(t *testing.T) {
	t.Parallel()
	for globs, want := range map[string]string{"main": injected, "a,m*": injected, "other": "", "mai": "", "*": injected} {
		t.Run(globs, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.args = append(b.args, "--containers", globs)
			assert.Equal(t, want, b.prepare(t, "", "cat etc/ld.so.preload 2>/dev/null"))
		})
	}
}

// TestProfile_Twice_SameContainer: the hook runs for each request. Of two claims, the claim of the mounted plan profiles the container, in
// any order of the hooks, and its sessions report that there is another. The other claim finds a note in its inbox, which is not mounted in
// the container.
func TestProfile_Twice_SameContainer(t *testing.T) {
	t.Parallel()
	inbox := t.TempDir()
	second := "hook --claim second --node node-a --inbox " + inbox + "\n"
	check := `grep -c ld.so.preload /proc/self/mountinfo; cat etc/ld.so.preload
grep -E "claim|several" run/prism/container/context; ls run/prism/results
grep -h -E "^(pod|container|process|reason|state)=" ` + inbox + "/s*/note"
	const noted = "pod=pod-a\ncontainer=main\nprocess=python3\nreason=OtherProfileWon\nstate=Failed\n"
	output := newBundle(t).prepare(t, "", `hook "$@"; `+second+second+check)
	assert.Equal(t, "1\n"+injected+"claim=uid\nseveral=1\n"+noted, output)
	require.NoError(t, os.RemoveAll(inbox))
	require.NoError(t, os.Mkdir(inbox, 0o777))
	first := newBundle(t)
	first.args = []string{"--claim", "second", "--node", "node-a", "--inbox", inbox}
	output = first.prepare(t, "", `grep -c ld.so.preload /proc/self/mountinfo
hook --claim uid --node node-a --inbox /inbox; `+check)
	assert.Equal(t, "0\n1\n"+injected+"claim=uid\nseveral=1\n"+noted, output)
}

// TestProfile_InboxIsLink_NotFollowed: nothing is written through the link, and the container is profiled for the other claim.
func TestProfile_InboxIsLink_NotFollowed(t *testing.T) {
	t.Parallel()
	target := t.TempDir()
	inbox := filepath.Join(t.TempDir(), "inbox")
	require.NoError(t, os.Symlink(target, inbox))
	output := newBundle(t).prepare(t, "", "hook --claim second --node node-a --inbox "+inbox+"; ls -A "+target+"; cat etc/ld.so.preload")
	assert.Equal(t, injected, output)
}

// TestProfile_PipeInOwnFolder_NotOpened: opening it would wait for a reader.
func TestProfile_PipeInOwnFolder_NotOpened(t *testing.T) {
	t.Parallel()
	output := newBundle(t).prepare(t, "mkfifo run/prism/container/.new", "cat etc/ld.so.preload; grep -c claim=uid run/prism/container/context")
	assert.Equal(t, injected+"1\n", output)
}

// TestProfile_TwoRequests_OneNote: the runtime starts the hook for each request of the container.
func TestProfile_TwoRequests_OneNote(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.config["process"] = map[string]any{"args": []string{"app"}, "cwd": "/", "env": []string{"PATH=/usr/bin"}}
	setup := `cp "` + staticProgram(t) + "\" usr/bin/app\n"
	assert.Equal(t, "reason=StaticOrMusl\n", b.prepare(t, setup, `hook "$@"; grep -h reason run/prism/results/s*/note`))
}

// TestProfile_TwoClaims_OneExcludes: a claim's exclusion applies regardless of other claims, and the other claim finds a note.
func TestProfile_TwoClaims_OneExcludes(t *testing.T) {
	t.Parallel()
	const excludes, check = "hook --claim uid --node node-a --inbox /inbox --containers sidecar\n", "grep -c ld.so.preload /proc/self/mountinfo; ls run/prism/results\n"
	inbox := t.TempDir()
	other := "hook --claim second --node node-a --inbox " + inbox + "\n"
	for _, order := range []string{excludes + other, other + excludes} {
		b := newBundle(t)
		b.args = []string{"--claim", "third", "--node", "node-a", "--inbox", "/inbox", "--containers", "sidecar"}
		noted := "grep -h ^reason= " + inbox + "/s*/note; rm -r " + inbox + "/s*"
		assert.Equal(t, "0\nreason=OtherProfileWon\n", b.prepare(t, "", order+check+noted))
	}
	b := newBundle(t)
	b.args = append(b.args, "--containers", "sidecar")
	assert.Equal(t, "0\n", b.prepare(t, "", check), "one claim that leaves it out has nothing to say")
	b = newBundle(t)
	assert.Equal(t, "1\n", b.prepare(t, "", "hook --claim second --node node-a --inbox /inbox --containers sidecar\n"+check))
}

func TestProfile_InvalidArguments_ContainerStarts(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, args := range [][]string{nil, {"--claim", "uid"}, {"--claim", "u", "--node", "n", "--plan", "p"}, {"--claim", "u", "--node", "n", "--inbox", "/i", "--containers", "["}} {
		b.args = args
		assert.Empty(t, b.prepare(t, "", "cat etc/ld.so.preload 2>/dev/null"))
	}
}

// TestProfile_Static_Noted: for programs into which the loader loads no library.
func TestProfile_Static_Noted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setup  string
		args   []string
		static bool
	}{
		"dynamic":           {"cp /bin/sh usr/bin/app", []string{"app"}, false},
		"the hook":          {`cp "$STATIC" usr/bin/app`, []string{"/usr/bin/app"}, true},
		"musl":              {`sed 's#ld-linux-x86-64.so.2#ld-musl-x86-64.so.1#' /bin/sh >usr/bin/app; chmod +x usr/bin/app`, []string{"app"}, true},
		"script of static":  {`cp "$STATIC" usr/bin/run; echo '#!/usr/bin/run -x' >usr/bin/app`, []string{"app"}, true},
		"script of dynamic": {`cp /bin/sh usr/bin/run; echo '#! /usr/bin/run' >usr/bin/app`, []string{"../usr/bin/app"}, false},
		"relative":          {`mkdir w; cp "$STATIC" w/app`, []string{"./app"}, true},
		"ring of scripts":   {"echo '#!/usr/bin/app' >usr/bin/app", []string{"app"}, false},
		"a pipe":            {"mkfifo usr/bin/app", []string{"app"}, false},
		"in a volume":       {`mkdir ../v; cp "$STATIC" ../v/app; mount --bind ../v usr/bin`, []string{"app"}, false},
		"no program":        {"", []string{"app"}, false},
		"no arguments":      {"", nil, false},
		"empty":             {"touch usr/bin/app", []string{"app"}, false},
		"half a header":     {"head -c 60 /bin/sh >usr/bin/app", []string{"app"}, false},
		"header alone":      {"head -c 64 /bin/sh >usr/bin/app", []string{"app"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.config["process"] = map[string]any{"args": c.args, "cwd": "/w", "env": []string{"PATH=/none:/usr/bin"}}
			want := ""
			if c.static {
				want = "static=1\nreason=StaticOrMusl\n"
			}
			setup := "STATIC=" + staticProgram(t) + "\n" + c.setup
			assert.Equal(t, want, b.prepare(t, setup, "grep -h -e static= -e reason run/prism/container/context run/prism/results/s*/note 2>/dev/null"))
		})
	}
}

var static struct {
	once sync.Once
	path string
	err  error
}

// staticProgram returns a program without a loader.
func staticProgram(t *testing.T) string {
	t.Helper()
	static.once.Do(func() {
		var dir string
		if dir, static.err = os.MkdirTemp("", "hook-static-"); static.err != nil {
			return
		}
		static.path = filepath.Join(dir, "prism-hook")
		command := exec.Command("go", "build", "-o", static.path, "../../cmd/prism-hook")
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		static.err = command.Run()
	})
	require.NoError(t, static.err)
	return static.path
}
