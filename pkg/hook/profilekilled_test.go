package hook_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProfile_KilledAtEverySystemCall_NothingOnHost: all leftovers are in the container's root and its tmpfs, which are deleted with the
// container. The container's list is either its own or the complete new one.
func TestProfile_KilledAtEverySystemCall_NothingOnHost(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	var total atomic.Int32
	t.Run("calls", func(t *testing.T) { // returns when all have ended
		for _, call := range []string{
			"openat2", "openat", "write", "fchmod", "renameat", "open_tree", "mount_setattr", "move_mount", "fsopen", "fsconfig", "fsmount",
		} {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				for n := 1; killedAt(t, call, n); n++ {
					total.Add(1)
					require.Less(t, n, 400, "it always ends")
				}
			})
		}
	})
	t.Logf("killed at %d system calls", total.Load())
	assert.Greater(t, total.Load(), int32(20), "each of them is used")
}

// killedAt runs the hook and kills it at the nth system call of a name. It returns false if there are fewer calls.
func killedAt(t *testing.T, call string, n int) bool {
	t.Helper()
	b := newBundle(t)
	b.config["root"] = map[string]any{"path": "rootfs", "readonly": true}
	traced := fmt.Sprintf("#!/bin/sh\nexec strace -f -o %s/trace -e trace=%s -e inject=%s:signal=SIGKILL:when=%d %s \"$@\"\n", b.dir, call, call, n, os.Args[0])
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "traced"), []byte(traced), 0o755))
	output := b.prepare(t, "HOOK=$0/../traced; mkdir ../v; echo liba.so >../v/ld.so.preload; mount --bind ../v etc\n", "echo; cat etc/ld.so.preload")
	list := output[strings.LastIndex(output, "\n\n")+1:]
	assert.Contains(t, []string{"\nliba.so\n", "\nliba.so\n" + injected}, list)
	assert.Equal(t, []string{"config.json", "rootfs", "trace", "traced", "v", "v/ld.so.preload"}, hostFiles(t, b.dir))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), b.dir)
	trace, err := os.ReadFile(filepath.Join(b.dir, "trace"))
	require.NoError(t, err)
	return strings.Contains(string(trace), "killed by SIGKILL")
}

// hostFiles returns all files of a bundle except its root, in which only the hook's files for the container may appear.
func hostFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if path != dir {
			name, _ := filepath.Rel(dir, path)
			files = append(files, name)
		}
		if entry.Name() == "rootfs" {
			return fs.SkipDir
		}
		return nil
	}))
	return files
}
