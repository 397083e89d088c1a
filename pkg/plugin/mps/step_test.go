package mps

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// TestStep_SharesOfGPU_FirstMakesLastRemoves asserts the counts: the next share costs no call of the driver and one round trip, and undoing a
// share that is not the last one costs nothing.
func TestStep_SharesOfGPU_FirstMakesLastRemoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	for i, want := range [][]string{{"mode", "new", "Exclusive_Process", "ensure"}, {"ensure"}, {"ensure"}} {
		made, err := step.Do(t.Context(), use(2048, 25))
		require.NoError(t, err)
		assert.Empty(t, made)
		assert.Equal(t, want, w.since(), i)
	}
	assert.Equal(t, gpu.ComputeExclusiveProcess, w.mode(string(uuidA)))
	assert.Equal(t, gpu.MPSDaemonSpec{
		GPU: uuidA, Device: string(uuidA), MemoryMiB: 20480, ActiveThreadPercentage: 50, ShmBytes: 1 << 30,
	}, w.daemons[daemonA].Spec)
	raw, err := os.ReadFile(filepath.Join(w.dir, "mps", "aaaaaaaa.json"))
	require.NoError(t, err)
	id := string(uuidA)
	assert.JSONEq(t, `{"bootID":"boot-1","gpu":"`+id+`","device":"`+id+`","mode":"Default","load":"load-1","pid":101,"started":1010}`, string(raw))

	for range 2 {
		require.NoError(t, step.Undo(t.Context(), use(2048, 25)))
		assert.Empty(t, w.since())
	}
	require.NoError(t, w.step().Undo(t.Context(), last(use(2048, 25))), "by another process")
	assert.Equal(t, []string{"stop", "Default"}, w.since())
	assert.Equal(t, gpu.ComputeDefault, w.mode(string(uuidA)))
	assert.Empty(t, w.daemons)
	assert.Empty(t, w.files(t))
	require.NoError(t, step.Undo(t.Context(), last(use(2048, 25))), "undone already")
	assert.Equal(t, []string{"stop"}, w.since())
}

func TestStep_ModeOfAdministrator_KeptOrRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	w.modes[string(uuidA)] = gpu.ComputeExclusiveProcess
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	assert.Equal(t, []string{"mode", "new", "ensure"}, w.since())
	require.NoError(t, step.Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, gpu.ComputeExclusiveProcess, w.mode(string(uuidA)))

	w.modes[string(uuidA)] = gpu.ComputeProhibited
	w.since()
	_, err = step.Do(t.Context(), use(0, 0))
	require.EqualError(t, err, "the compute mode of "+string(uuidA)+" is Prohibited, which an administrator has set, so no program can use it: "+
		"set another one on the node with nvidia-smi -i "+string(uuidA)+" -c 0")
	require.NotErrorIs(t, err, gpu.ErrInUse)
	assert.Equal(t, []string{"mode"}, w.since(), "nothing was begun")
	require.NoError(t, step.Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, gpu.ComputeProhibited, w.mode(string(uuidA)))
	assert.Empty(t, w.files(t))
}

// TestStep_DriverRefusesMode_NothingToRestore: the driver has certainly not set it, so Undo does not try to.
func TestStep_DriverRefusesMode_NothingToRestore(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{gpu.ErrLost, gpu.ErrPermission, gpu.ErrDriverNotLoaded} {
		w := newWorld(t)
		w.failing["set"] = refusal
		_, err := w.step().Do(t.Context(), use(0, 0))
		require.ErrorIs(t, err, refusal)
		w.since()
		require.NoError(t, w.step().Undo(t.Context(), last(use(0, 0))))
		assert.Equal(t, []string{"stop"}, w.since())
		assert.Empty(t, w.files(t))
	}
	w := newWorld(t)
	w.failing["set"] = gpu.ErrTimeout // it may have been set
	_, err := w.step().Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrTimeout)
	delete(w.failing, "set")
	w.since()
	require.NoError(t, w.step().Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, []string{"stop", "Default"}, w.since())
}

func TestStep_ClientsConnected_NotStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	w.clients = []int{71, 72}
	err = step.Undo(t.Context(), last(use(0, 0)))
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorContains(t, err, "MPS clients are still connected, with the pids [71 72] on the host")
	assert.Equal(t, gpu.ComputeExclusiveProcess, w.mode(string(uuidA)))
	assert.NotEmpty(t, w.files(t))
}

// TestUndo_GPULostOrDriverReplaced_ModeStaysOrIsReset: a lost GPU keeps its mode for when it comes back, a driver that was loaded again has
// reset it.
func TestUndo_GPULostOrDriverReplaced_ModeStaysOrIsReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	w.failing["set"] = gpu.ErrLost
	err = step.Undo(t.Context(), last(use(0, 0)))
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, "setting the compute mode of "+string(uuidA)+" to Default again")
	found, err := step.Find(t.Context())
	require.NoError(t, err)
	assert.Len(t, found, 1, "the saved mode is found")
	w.failing["driver"], w.load = gpu.ErrDriverNotLoaded, ""
	require.ErrorIs(t, step.Undo(t.Context(), last(use(0, 0))), gpu.ErrDriverNotLoaded)
	w.load = "load-2"
	w.since()
	require.NoError(t, step.Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, []string{"stop"}, w.since())
	assert.Empty(t, w.files(t))
}

func TestStep_OtherBootOrTruncatedFile_Absent(t *testing.T) {
	t.Parallel()
	for _, content := range []string{`{"bootID":"boot-0","mode":"Prohibited"}`, `{"bootID":"boot-1","mo`} {
		w := newWorld(t)
		w.writeFile(t, daemonA, content)
		assert.True(t, w.step().Store.Empty())
		found, err := w.step().Find(t.Context())
		require.NoError(t, err)
		assert.Empty(t, found)
		_, err = w.step().Do(t.Context(), use(0, 0))
		require.NoError(t, err)
		assert.False(t, w.step().Store.Empty())
		require.NoError(t, w.step().Undo(t.Context(), last(use(0, 0))))
		assert.Equal(t, gpu.ComputeDefault, w.mode(string(uuidA)))
	}
}

// fullDisk fails every write.
type fullDisk struct{ disk.OS }

func (fullDisk) Write(string, []byte, fs.FileMode, bool) error { return syscall.ENOSPC }

func TestStep_FullDisk_DoFailsAndUndoSucceeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	full := w.step()
	full.Store = NewStore(fullDisk{}, w.dir, "boot-1")
	_, err := full.Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.Equal(t, gpu.ComputeDefault, w.mode(string(uuidA)), "a mode that cannot be saved is not changed")
	_, err = w.step().Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	require.NoError(t, full.Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, gpu.ComputeDefault, w.mode(string(uuidA)))
	assert.Empty(t, w.files(t))
}

// TestStep_MIGDevice_FoundAtPlacement with its own daemon. Its mode is set only if the driver supports one for it, and goes with it.
func TestStep_MIGDevice_FoundAtPlacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	_, err := step.Do(t.Context(), useMIG())
	require.ErrorIs(t, err, gpu.ErrNotFound)
	w.withMIG()
	w.failing["mode"] = &gpu.UnsupportedError{Feature: "it"}
	_, err = step.Do(t.Context(), useMIG())
	require.NoError(t, err)
	assert.Equal(t, uuidMIG, w.daemons[daemonM].Spec.Device)
	assert.Equal(t, []string{"mode", "new", "ensure"}, w.since())
	require.NoError(t, step.Undo(t.Context(), last(useMIG())))
	assert.Equal(t, []string{"stop"}, w.since())

	delete(w.failing, "mode")
	w.modes[uuidMIG], w.failing["set"] = gpu.ComputeDefault, &gpu.UnsupportedError{Feature: "it"}
	_, err = step.Do(t.Context(), useMIG())
	require.NoError(t, err, "it can be read and not set")
	require.NoError(t, step.Undo(t.Context(), last(useMIG())))
	assert.Equal(t, []string{"mode", "new", "Exclusive_Process", "ensure", "stop"}, w.since())

	delete(w.failing, "set")
	_, err = step.Do(t.Context(), useMIG())
	require.NoError(t, err)
	assert.Equal(t, gpu.ComputeExclusiveProcess, w.mode(uuidMIG))
	delete(w.modes, uuidMIG) // removed by an administrator
	require.NoError(t, step.Undo(t.Context(), last(useMIG())))
	assert.Empty(t, w.files(t))
	assert.Equal(t, gpu.ComputeDefault, w.mode(string(uuidA)), "that of the GPU is left alone")
}

// TestStep_MIGDeviceMadeAgain_DaemonReplaced: a daemon that could not be stopped serves the former MIG device at that place.
func TestStep_MIGDeviceMadeAgain_DaemonReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withMIG()
	w.modes[uuidMIG] = gpu.ComputeDefault
	_, err := w.step().Do(t.Context(), useMIG())
	require.NoError(t, err)
	w.mig[1].Compute[0].UUID, w.modes["MIG-2"] = "MIG-2", gpu.ComputeDefault
	delete(w.modes, uuidMIG)
	_, err = w.step().Do(t.Context(), useMIG())
	require.NoError(t, err)
	assert.Equal(t, "MIG-2", w.daemons[daemonM].Spec.Device)
	assert.Equal(t, gpu.ComputeExclusiveProcess, w.mode("MIG-2"))
}

func TestVerify_DaemonGone_NotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	require.ErrorIs(t, step.Verify(t.Context(), use(0, 0)), gpu.ErrNotFound)
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	w.since()
	require.NoError(t, step.Verify(t.Context(), use(0, 0)))
	assert.Equal(t, []string{"list"}, w.since(), "the service has not reported it")
	step.Watcher.set(state{current: true, daemons: []gpu.MPSDaemon{*w.daemons[daemonA]}})
	require.NoError(t, step.Verify(t.Context(), use(0, 0)))
	assert.Empty(t, w.since())
	w.exit(daemonA)
	step.Watcher.set(state{current: true, daemons: []gpu.MPSDaemon{*w.daemons[daemonA]}})
	require.ErrorIs(t, step.Verify(t.Context(), use(0, 0)), gpu.ErrNotFound)
	w.down = errors.New("connection refused")
	err = step.Verify(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable, "whether it runs is not known")
	require.NotErrorIs(t, err, gpu.ErrNotFound)
}

func TestPrecheck_ServiceUnavailable_RefusedWithoutRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	step.Watcher.set(state{answer: Answer{Asked: true}})
	require.NoError(t, step.Precheck(t.Context(), use(0, 0)))
	step.Watcher.set(state{answer: Answer{Asked: true, Unavailable: gpu.ErrMPSUnavailable}})
	err := step.Precheck(t.Context(), use(0, 0))
	require.EqualError(t, err, "the MPS service does not answer; MPS shares need the MPS service on this node, which runs where the chart value mps.enabled is true")
	require.ErrorIs(t, err, gpu.ErrTimeout, "it is retried")
	assert.Empty(t, w.since())
}

// TestPrecheck_ServiceNotWatched_AskedOnce: a claim for a whole GPU on a node without MPS shares may want MPS, and the node may lack the
// service.
func TestPrecheck_ServiceNotWatched_AskedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.step().Precheck(t.Context(), use(0, 0)))
	w.problem = "MPS needs nvidia-cuda-mps-control"
	err := w.step().Precheck(t.Context(), use(0, 0))
	require.EqualError(t, err, "the MPS service of this node cannot start a control daemon: MPS needs nvidia-cuda-mps-control")
	w.down = fs.ErrNotExist
	err = w.step().Precheck(t.Context(), use(0, 0))
	require.EqualError(t, err, "no MPS service runs on this node: set the chart value mps.enabled to true, or check the pod of the MPS service on this node")
	require.ErrorIs(t, err, gpu.ErrTimeout, "it is retried")
	assert.Equal(t, []string{"list"}, w.since(), "a service that restarts is waited for")
	synctest.Test(t, func(t *testing.T) {
		step, began := w.step(), time.Now()
		step.Daemons = hanging{w}
		require.Error(t, step.Precheck(t.Context(), use(0, 0)))
		assert.Equal(t, precheckTime, time.Since(began), "the GPU is locked no longer")
	})
}

func TestFind_NodeWithoutShares_ServiceNotAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	step.Needed = func() bool { return false }
	found, err := step.Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Empty(t, w.since())
	step.Needed = func() bool { return true }
	w.run(daemonA, gpu.MPSDaemonSpec{GPU: uuidA})
	found, err = step.Find(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, uuidA, found[0].Target)
	assert.True(t, step.Names(use(0, 0), found[0]))
	assert.False(t, step.Names(useMIG(), found[0]))
	assert.False(t, step.Same(use(0, 0), checkpoint.Step{Target: "GPU-b", Args: use(0, 0).Args}))
}

func TestEdits_Share_EnvironmentMountsAndHook(t *testing.T) {
	t.Parallel()
	step := newWorld(t).step()
	of := use(2048, 25)
	of.CDIDevice, of.ClaimUID = "uid-gpu-a", "uid"
	step.Socket = "/run/hook.sock"
	edits, err := step.Edits(of)
	require.NoError(t, err)
	mount := func(from, to, access string) *specs.Mount {
		return &specs.Mount{
			HostPath: "/run/gpu.prism.dev/mps/aaaaaaaa/" + from, ContainerPath: to,
			Options: []string{access, "nosuid", "nodev", "noexec", "rbind", "rprivate"},
		}
	}
	assert.Equal(t, cdi.Edits{
		Env: map[string]string{
			"CUDA_MPS_PIPE_DIRECTORY": "/run/prism/mps", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
		},
		Mounts:    []*specs.Mount{mount("client", "/run/prism/mps", "ro"), mount("shm", "/dev/.//shm", "rw")},
		Exclusive: true,
		Hooks: []*specs.Hook{{HookName: "createRuntime", Path: "/prism-hook", Args: []string{
			"exclusive", "--socket", "/run/hook.sock", "--claim", "uid", "--device", "uid-gpu-a", "--shm", "/run/gpu.prism.dev/mps/aaaaaaaa/shm", "--shm-size", "1073741824",
		}}},
	}, edits)
	edits, err = step.Edits(use(0, 0))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/run/prism/mps"}, edits.Env)
	_, err = step.Edits(checkpoint.Step{Args: []byte("{")})
	require.Error(t, err)
}

func TestStatus_Share_LimitsAndEnforcement(t *testing.T) {
	t.Parallel()
	step := newWorld(t).step()
	assert.Equal(t, map[string]any{"mps": map[string]any{"daemon": "aaaaaaaa"}, "memoryEnforcement": "cooperative"}, step.Status(use(0, 0)))
	step.Watcher.set(state{current: true, daemons: []gpu.MPSDaemon{{ID: daemonA, MultiUser: true}}})
	assert.Equal(t, map[string]any{
		"mps":               map[string]any{"daemon": "aaaaaaaa", "memory": "2048Mi", "activeThreadPercentage": 25, "multiUser": true},
		"memoryEnforcement": "cooperative",
	}, step.Status(use(2048, 25)))
	assert.Nil(t, step.Status(checkpoint.Step{Args: []byte("{")}))
}
