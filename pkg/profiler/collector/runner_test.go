package collector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/tool"
)

// local returns a runner of this process, with programs of the test instead of nsys and prism-run.
func local(t *testing.T, nsys, prismRun string) *runner {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces")
	}
	c := Collector{Self: os.Args[0], Dir: t.TempDir(), Work: t.TempDir(), Programs: t.TempDir()}
	for name, text := range map[string]string{"nsys": nsys, "prism-run": prismRun} {
		require.NoError(t, writeProgram(filepath.Join(c.Programs, name), []byte("#!/bin/sh\n"+text)))
	}
	root, err := os.OpenRoot(c.Dir)
	require.NoError(t, err)
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	t.Cleanup(func() { _ = errors.Join(root.Close(), watcher.Close()) })
	r, err := c.runner(tool.Program{Path: filepath.Join(c.Programs, "nsys")}, root, watcher)
	require.NoError(t, err)
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(c.Dir, claimA, counters.PlanDir), 0o700), os.Mkdir(filepath.Join(c.Dir, claimA, counters.InboxDir), 0o700)))
	return r
}

// TestHelp_Hangs_KilledWithItsProcesses: nsys and what it started.
func TestHelp_Hangs_KilledWithItsProcesses(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	r := local(t, "exec 9>"+lock+"\nflock 9\nsetsid sleep 1000 &\necho begun\nsleep 1000\n", "")
	r.helpTimeout = 100 * time.Millisecond
	for {
		text, err := r.help(t.Context(), "profile", "--gpu-metrics-device=help")
		require.EqualError(t, err, fmt.Sprintf("nsys profile --gpu-metrics-device=help took longer than %v", r.helpTimeout))
		if text != "" {
			assert.Equal(t, "begun\n", text)
			break
		}
		r.helpTimeout *= 2
	}
	file, err := os.Open(lock)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_EX), "all processes have exited")
}

func TestHelp_Fails_OutputAndError(t *testing.T) {
	t.Parallel()
	r := local(t, "echo oops; head -c 1000000 /dev/zero | tr '\\0' x; exit 3", "")
	text, err := r.help(t.Context(), "profile", "--gpu-metrics-device=help")
	require.ErrorContains(t, err, "nsys profile --gpu-metrics-device=help: exit status 3: xxx")
	assert.True(t, strings.HasPrefix(text, "oops\nxxx"))
	assert.Len(t, text, maxOutput)
	r.program.Path = "/none"
	_, err = r.help(t.Context(), "profile")
	require.ErrorContains(t, err, "no such file or directory")
}

// TestBegin_IgnoresTermination_Killed: with its processes, when the order is removed.
func TestBegin_IgnoresTermination_Killed(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, unix.Mkfifo(ready, 0o600))
	r := local(t, "", "trap '' TERM\necho >"+ready+"\nwhile :; do sleep 1000; done\n")
	r.grace = 10 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	o := order(claimA, gpuA)
	p, err := r.begin(ctx, &o, nsight.Commands{}, make(chan struct{}))
	require.NoError(t, err)
	_, err = os.ReadFile(ready)
	require.NoError(t, err)
	stop()
	for e := range p.events() {
		assert.Fail(t, "event", e)
	}
	assert.Equal(t, counters.Failed, p.result().reason)
	assert.NoDirExists(t, filepath.Join(r.work, ownDir, claimA))
	assert.Empty(t, r.watcher.(*fsnotify.Watcher).WatchList())
}

// TestBegin_FoldersMissing_Error: the plugin removes them after the order.
func TestBegin_FoldersMissing_Error(t *testing.T) {
	t.Parallel()
	r := local(t, "", "")
	o := order(claimB, gpuA)
	_, err := r.begin(t.Context(), &o, nsight.Commands{}, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	o = order(claimA, gpuA)
	require.NoError(t, os.Remove(filepath.Join(r.dir, claimA, counters.InboxDir)))
	_, err = r.begin(t.Context(), &o, nsight.Commands{}, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
