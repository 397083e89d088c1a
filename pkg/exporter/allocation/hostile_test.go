package allocation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// heap is the memory in use after a garbage collection.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestIdentify_LongCgroupPaths_NotKept: a container can create cgroups with arbitrarily long paths in every hierarchy. It is not parallel,
// because all tests share the heap.
func TestIdentify_LongCgroupPaths_NotKept(t *testing.T) {
	w := newWorld(t, withoutLimit())
	w.runtime.add(id("a"), "pod", "main")
	const count, hierarchies = 256, 12
	var pids []uint32
	for pid := range count {
		var cgroup strings.Builder
		for n := range hierarchies {
			fmt.Fprintf(&cgroup, "%d:c%d:%s%s/%s\n", n, n, inPod, id("a"), strings.Repeat("x/", 1900)+fmt.Sprint(pid))
		}
		w.process(1000+pid, 1, "python3", "/")
		w.file(fmt.Sprintf("%d/cgroup", 1000+pid), cgroup.String())
		pids = append(pids, uint32(1000+pid))
	}
	before := heap()
	found := w.tracker.Identify(pids)
	after := heap()
	require.Len(t, found, count)
	for _, identity := range found {
		assert.Equal(t, id("a"), identity.ContainerID)
	}
	t.Logf("%d KiB of cgroups, %d KiB kept", count*hierarchies*4, (int64(after)-int64(before))/1024)
	assert.Less(t, int64(after)-int64(before), int64(count*hierarchies*4*1024/4))
	runtime.KeepAlive(found)
}

// TestIdentify_CgroupPathTooLong_NotHidden: the kernel does not show paths above 4096 bytes. Such a process belongs to no known container,
// but has not exited.
func TestIdentify_CgroupPathTooLong_NotHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	w.process(7, 4711, "python3", "/")
	cgroup := filepath.Join(w.dir, "proc/7/cgroup")
	require.NoError(t, os.Remove(cgroup))
	require.NoError(t, os.Symlink(strings.Repeat("x", 300), cgroup))
	_, err := os.ReadFile(cgroup)
	require.ErrorContains(t, err, "file name too long")
	assert.Equal(t, map[uint32]metrics.ProcessIdentity{7: {Start: 4711, Command: "python3"}}, w.tracker.Identify([]uint32{7}))
}

// openFiles is the number of open files of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// TestRun_Ends_NothingLeft: watches, connections and goroutines end with it, even if the directory of records is created and removed
// repeatedly.
func TestRun_Ends_NothingLeft(t *testing.T) {
	w := newWorld(t, withoutLimit())
	w.put(record("a", whole("gpu-0")))
	round := func() {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = w.tracker.Run(ctx) })
		w.eventually("the records are read", func() bool { return len(w.list()) == 1 && w.source(SourcePodResources).OK && w.source(SourceCRI).OK })
		cancel()
		running.Wait()
	}
	round()
	// The servers close their connections a little later.
	files, goroutines := 0, 0
	steady := func() bool {
		before, running := files, goroutines
		files, goroutines = openFiles(t), runtime.NumGoroutine()
		return files == before && goroutines == running
	}
	require.Eventually(t, steady, time.Minute, 50*time.Millisecond)
	limitFiles, limitGoroutines := files, goroutines
	for range 20 {
		round()
	}
	require.Eventually(t, func() bool {
		return openFiles(t) <= limitFiles && runtime.NumGoroutine() <= limitGoroutines
	}, time.Minute, 10*time.Millisecond, "%d files and %d goroutines before", limitFiles, limitGoroutines)
}
