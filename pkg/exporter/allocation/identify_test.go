package allocation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

const inPod = "/kubepods/pod1/"

// withoutLimit allows another query of the runtime at once.
func withoutLimit() schedule {
	s := never
	s.cri, s.criAway = 0, 0
	return s
}

func TestIdentify_Processes_StartCommandContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.read()
	require.Equal(t, []metrics.Container{{Namespace: "ns", Pod: "pod", Name: "main"}}, w.list()[0].Containers)
	before := w.runtime.calls.Load()
	w.runtime.add(id("a"), "pod", "main")
	w.process(7, 4711, "a) S 1 (b", inPod+id("a"))
	w.process(8, 1, "sshd", "/system.slice/sshd.service")
	w.process(9, 2, "exited", inPod+id("a"))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "proc/9/stat"), []byte("9 (exited) Z 1 9 9"+strings.Repeat(" 0", 15)+" 2 0\n"), 0o600))
	want := map[uint32]metrics.ProcessIdentity{
		7: {Start: 4711, Command: "a) S 1 (b", ContainerID: id("a")}, 8: {Start: 1, Command: "sshd"}, 9: {},
	}
	for range 3 {
		assert.Equal(t, want, w.tracker.Identify([]uint32{7, 8, 9, 10}))
	}
	assert.Equal(t, before+1, w.runtime.calls.Load(), "one list for a new id")
	assert.Equal(t, []metrics.Container{{Namespace: "ns", Pod: "pod", Name: "main", PodUID: "uid-of-pod", ID: id("a")}}, w.list()[0].Containers)
	assert.False(t, w.tracker.HidesProcesses())
	assert.True(t, w.source(SourceProc).OK)
	assert.Empty(t, w.tracker.Identify(nil))
}

// TestIdentify_MainThreadExited_ContainerOfAnotherThread: a process may continue without its main thread, which cgroup v1 moves to the
// root.
func TestIdentify_MainThreadExited_ContainerOfAnotherThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	w.runtime.add(id("a"), "pod", "main")
	stat := func(tid int, state string, threads int) string {
		return fmt.Sprintf("%d (main) %s 1 7 7%s %d 0 4711 0\n", tid, state, strings.Repeat(" 0", 13), threads)
	}
	w.process(7, 4711, "main", "/")
	w.file("7/stat", stat(7, "Z", 3))
	w.file("7/task/7/stat", stat(7, "Z", 3))
	w.file("7/task/7/cgroup", "0::/\n")
	w.file("7/task/8/stat", stat(8, "X", 3))
	w.file("7/task/8/cgroup", "0::/\n")
	w.file("7/task/9/stat", stat(9, "S", 3))
	w.file("7/task/9/cgroup", "0::"+inPod+id("a")+"\n")
	want := metrics.ProcessIdentity{Start: 4711, Command: "main", ContainerID: id("a")}
	assert.Equal(t, map[uint32]metrics.ProcessIdentity{7: want}, w.tracker.Identify([]uint32{7}))

	w.file("7/task/9/stat", stat(9, "X", 1))
	w.file("7/stat", stat(7, "Z", 1))
	assert.Equal(t, map[uint32]metrics.ProcessIdentity{7: {}}, w.tracker.Identify([]uint32{7}), "the last thread has exited")
}

// TestIdentify_PIDReused_AnotherProcess: a pid is another process in the next round.
func TestIdentify_PIDReused_AnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	w.runtime.add(id("a"), "first", "main")
	w.runtime.add(id("b"), "second", "main")
	w.process(7, 1, "x", inPod+id("a"))
	assert.Equal(t, id("a"), w.tracker.Identify([]uint32{7})[7].ContainerID)
	w.process(7, 2, "x", "/")
	assert.Empty(t, w.tracker.Identify([]uint32{7})[7].ContainerID, "runtimes start processes outside, and move them")
	w.process(7, 2, "x", inPod+id("b"))
	assert.Equal(t, metrics.ProcessIdentity{Start: 2, Command: "x", ContainerID: id("b")}, w.tracker.Identify([]uint32{7})[7])
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "proc/7")))
	assert.Empty(t, w.tracker.Identify([]uint32{7}))
}

// TestIdentify_NestedCgroups_OutermostContainer: a container can name cgroups below its own like the container of another tenant.
func TestIdentify_NestedCgroups_OutermostContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	w.runtime.add(id("b"), "victim", "main")
	w.process(6, 1, "victim", inPod+id("b"))
	require.Equal(t, id("b"), w.tracker.Identify([]uint32{6})[6].ContainerID)

	w.process(7, 1, "x", inPod+id("a")+"/"+id("b"))
	w.runtime.stop()
	assert.Empty(t, w.tracker.Identify([]uint32{7})[7].ContainerID, "as long as the outer one is not known to be none")
	w.serveRuntime()
	w.runtime.add(id("a"), "hostile", "main")
	assert.Equal(t, id("a"), w.tracker.Identify([]uint32{7})[7].ContainerID)

	// A node may itself be a container of another runtime than the kubelet's.
	w.process(8, 1, "x", "/docker/"+id("d")+"/kubelet"+inPod+id("b")+"/"+id("a"))
	assert.Equal(t, id("b"), w.tracker.Identify([]uint32{8})[8].ContainerID)
}

// TestIdentify_ForeignContainer_AskedForOnce: containers of another runtime on the node are not the kubelet's.
func TestIdentify_ForeignContainer_AskedForOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	w.process(7, 1, "x", "/docker/"+id("d"))
	for range 3 {
		assert.Equal(t, map[uint32]metrics.ProcessIdentity{7: {Start: 1, Command: "x"}}, w.tracker.Identify([]uint32{7}))
	}
	assert.EqualValues(t, 1, w.runtime.calls.Load())
}

func TestIdentify_ManyNewContainers_RuntimeAskedOnceATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	for pid := range 9 {
		w.process(pid+1, 1, "x", inPod+id(fmt.Sprint(pid)))
		w.runtime.add(id(fmt.Sprint(pid)), fmt.Sprint(pid), "main")
		w.tracker.Identify([]uint32{uint32(pid + 1)})
	}
	assert.EqualValues(t, 1, w.runtime.calls.Load(), "the next list is not due yet")
	assert.True(t, w.tracker.Identify([]uint32{9})[9].Unresolved, "until then it is not of no container")
}

func TestIdentify_RuntimeAway_KnownContainersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.read()
	w.runtime.add(id("a"), "pod", "main")
	w.process(7, 1, "x", inPod+id("a"))
	require.Equal(t, id("a"), w.tracker.Identify([]uint32{7})[7].ContainerID)
	w.runtime.stop()
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "run")))
	w.process(8, 1, "x", inPod+id("b"))
	found := w.tracker.Identify([]uint32{7, 8})
	assert.Equal(t, id("a"), found[7].ContainerID)
	assert.Equal(t, metrics.ProcessIdentity{Start: 1, Command: "x", Unresolved: true}, found[8], "it may be of a container that was restarted")
	assert.Equal(t, id("a"), w.list()[0].Containers[0].ID)
	assert.False(t, w.source(SourceCRI).OK)
	assert.Contains(t, w.source(SourceCRI).Error, "no container runtime serves at /run/containerd/containerd.sock")
	w.runtime.add(id("b"), "pod-b", "main")
	w.serveRuntime()
	assert.Equal(t, metrics.ProcessIdentity{Start: 1, Command: "x", ContainerID: id("b")}, w.tracker.Identify([]uint32{8})[8])
}

// TestRun_RuntimeComesLater_AskedAgain: the exporter becomes ready without a process on a GPU.
func TestRun_RuntimeComesLater_AskedAgain(t *testing.T) {
	t.Parallel()
	s := withoutLimit()
	s.pods = s.listAfter
	w := newWorld(t, s)
	w.runtime.stop()
	w.run()
	w.eventually("its absence is reported", func() bool { return w.source(SourceCRI).Error != notRead && !w.source(SourceCRI).OK })
	assert.NotZero(t, w.source(SourceCRI).Errors)
	w.serveRuntime()
	w.eventually("it answers", func() bool { return w.source(SourceCRI).OK })
}

// TestRuntimeSocket_LinksOfTheHost_Followed: /var/run is an absolute link on most hosts.
func TestRuntimeSocket_LinksOfTheHost_Followed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(root, "var"), 0o755), os.Symlink("/run", filepath.Join(root, "var/run"))))
	path, err := runtimeSocket{set: "/var/run/containerd/containerd.sock", hostRoot: root}.path()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(root, "run/containerd/containerd.sock"), path)
}

// TestRuntimeSocket_DetectedBehindLink_Followed: a runtime's directory may be an absolute link on the host.
func TestRuntimeSocket_DetectedBehindLink_Followed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	require.NoError(t, errors.Join(os.Rename(filepath.Join(w.dir, "run"), filepath.Join(w.dir, "volatile")),
		os.Symlink("/volatile", filepath.Join(w.dir, "run"))))
	path, err := runtimeSocket{hostRoot: w.dir}.path()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(w.dir, "volatile/containerd/containerd.sock"), path)
}

// TestAllocations_ContainerRestarted_TheRunningOne: runtimes list exited containers too.
func TestAllocations_ContainerRestarted_TheRunningOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	w.read()
	w.runtime.add(id("1"), "pod", "main")
	w.runtime.add(id("2"), "pod", "main")
	w.runtime.add(id("3"), "pod", "main")
	w.runtime.containers[2].State = cri.ContainerState_CONTAINER_EXITED
	w.process(7, 1, "x", inPod+id("2"))
	w.tracker.Identify([]uint32{7})
	assert.Equal(t, id("2"), w.list()[0].Containers[0].ID)

	// The next pod of that name contains another container.
	w.runtime.containers[0].State, w.runtime.containers[1].State = cri.ContainerState_CONTAINER_EXITED, cri.ContainerState_CONTAINER_EXITED
	require.NoError(t, w.records.Delete("a"))
	w.read()
	b := record("b", whole("gpu-0"))
	w.put(b)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": b}))
	w.read()
	assert.Equal(t, []metrics.Container{{Namespace: "ns", Pod: "pod", Name: "main"}}, w.list()[0].Containers)
	w.runtime.add(id("4"), "pod", "main")
	w.process(8, 1, "x", inPod+id("4"))
	assert.Equal(t, id("4"), w.tracker.Identify([]uint32{8})[8].ContainerID)
	assert.Equal(t, id("4"), w.list()[0].Containers[0].ID)
}

// TestSources_ProcOfAnotherNamespace_Reported: NVML reports pids of the exporter's pid namespace.
func TestSources_ProcOfAnotherNamespace_Reported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	assert.Equal(t, Source{Name: SourceProc, Error: notRead}, w.source(SourceProc))
	for _, self := range []string{"1234567", ""} {
		require.NoError(t, os.Remove(filepath.Join(w.dir, "proc/self")))
		require.NoError(t, os.Symlink(self+"x", filepath.Join(w.dir, "proc/self")))
		assert.True(t, w.tracker.HidesProcesses())
		assert.Contains(t, w.source(SourceProc).Error, "belongs to another pid namespace")
	}
	require.NoError(t, os.Remove(filepath.Join(w.dir, "proc/self")))
	assert.True(t, w.tracker.HidesProcesses())
	assert.Contains(t, w.source(SourceProc).Error, "or is not a /proc")
}

// TestSources_ExporterWithoutHostPID_Reported: its own /proc is consistent then, the host's is not.
func TestSources_ExporterWithoutHostPID_Reported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tracker := New(Options{HostRoot: dir, Records: dir})
	assert.False(t, tracker.HidesProcesses(), "a root without /proc is no sign of it")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "proc"), 0o755))
	require.NoError(t, os.Symlink(strconv.Itoa(os.Getpid()+1), filepath.Join(dir, "proc/self")))
	assert.True(t, tracker.HidesProcesses())
	i := slices.IndexFunc(tracker.Sources(), func(s Source) bool { return s.Name == SourceProc })
	assert.Contains(t, tracker.Sources()[i].Error, "set hostPID")
}

// Annotations contain any text of the pod's author, and must not make the list expensive.
func TestAllocations_LongAnnotations_ContainersNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutLimit())
	a := record("a", whole("gpu-0"))
	w.put(a)
	w.kubelet.set(pod("pod", map[string]*checkpoint.Record{"main": a}))
	for i := range 70 {
		w.runtime.add(fmt.Sprintf("%064d", i), "other", strconv.Itoa(i))
		w.runtime.containers[i].Annotations = map[string]string{"io.kubernetes.container.ports": strings.Repeat("p", 1<<20)}
	}
	w.runtime.add(id("2"), "pod", "main")
	w.read()
	require.Empty(t, w.source(SourceCRI).Error, "more than 64 MiB")
	assert.Equal(t, id("2"), w.list()[0].Containers[0].ID)
}
