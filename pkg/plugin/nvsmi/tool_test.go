package nvsmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const someGPU = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")

// longTimeout is for programs that exit by themselves.
const longTimeout = 5 * time.Minute

// scripted returns a tool that runs a shell script instead of nvidia-smi.
func scripted(t *testing.T, script string) *Tool {
	t.Helper()
	program := filepath.Join(t.TempDir(), "nvidia-smi")
	syscall.ForkLock.RLock() // executing the file fails while a forked child holds it open for writing
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755))
	return &Tool{Find: func() (Install, error) { return Install{Program: program, Root: "/"}, nil }, Timeout: longTimeout}
}

func TestSetTimeslice_EachInterval_ProgramArgumentsAndEnvironment(t *testing.T) {
	t.Parallel()
	for interval, value := range policies {
		said := filepath.Join(t.TempDir(), "said")
		tool := scripted(t, `echo "$* $(env | sort | grep -v '^\(_\|PWD\|SHLVL\|OLDPWD\)=')" >>`+said)
		find := tool.Find
		tool.Find = func() (Install, error) {
			install, err := find()
			install.Library = "/no/such/libnvidia-ml.so.1"
			return install, err
		}
		require.NoError(t, tool.SetTimeslice(t.Context(), someGPU, interval))
		got, err := os.ReadFile(said)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("compute-policy -i %s --set-timeslice=%d LC_ALL=C\nLD_PRELOAD=/no/such/libnvidia-ml.so.1\n", someGPU, value), string(got))
	}
}

func TestSetTimeslice_ProgramFails_ErrorByExitCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		kind   error
		says   string
	}{
		"not root":        {"echo; echo 'Failed to set  timeslice'; exit 4", gpu.ErrPermission, "permission denied (nvidia-smi exited with code 4: Failed to set timeslice)"},
		"no such GPU":     {"echo No devices were found; exit 6", gpu.ErrNotFound, "not found (nvidia-smi exited with code 6: No devices were found)"},
		"no driver":       {"exit 9", gpu.ErrDriverNotLoaded, "exited with code 9: no output"},
		"no library":      {"exit 12", gpu.ErrDriverNotLoaded, "exited with code 12"},
		"lost":            {"echo lost >&2; exit 15", gpu.ErrLost, "exited with code 15: lost"},
		"in use":          {"exit 19", gpu.ErrInUse, "in use"},
		"something else":  {"head -c 100000 /dev/zero | tr '\\0' x; exit 77", nil, "nvidia-smi exited with code 77: " + strings.Repeat("x", 200)},
		"killed by other": {"kill -9 $$", nil, "signal: killed"},
		"no program":      {"", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := scripted(t, c.script)
			if c.script == "" {
				tool = &Tool{Find: func() (Install, error) { return Install{Program: "/no/such/program"}, nil }}
			}
			err := tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong)
			require.ErrorContains(t, err, "setting the time-slice interval of GPU "+string(someGPU)+" to Long with /")
			require.ErrorContains(t, err, c.says)
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
			assert.Less(t, len(err.Error()), 1000)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
	for script, want := range map[string]string{
		"echo Not Supported; exit 3": "(Not Supported) is not supported here: it needs a GPU of compute capability 7.0",
		"echo Invalid combination of input arguments.; exit 2": "(Invalid combination of input arguments.) is not supported here: it needs " +
			"nvidia-smi of driver 455 or later",
	} {
		err := scripted(t, script).SetTimeslice(t.Context(), someGPU, gpu.IntervalLong)
		unsupported, ok := errors.AsType[*gpu.UnsupportedError](err)
		require.True(t, ok, "%v", err)
		assert.Contains(t, unsupported.Error(), want)
	}
}

func TestSetTimeslice_NoProgramOrDriver_Refused(t *testing.T) {
	t.Parallel()
	none := &Tool{Find: func() (Install, error) { return Install{Root: "/run/nvidia/driver", Dirs: "usr/bin, opt/bin"}, nil }}
	require.EqualError(t, none.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong), "setting the time-slice interval of GPU "+string(someGPU)+
		" is not supported here: it needs nvidia-smi in the driver root /run/nvidia/driver (in usr/bin, opt/bin): install the driver's tools there, or add their directory with "+
		"--driver-search-dirs (chart value nvidiaSearchDirs)")
	unloaded := &Tool{Find: func() (Install, error) { return Install{}, gpu.ErrDriverNotLoaded }}
	require.ErrorIs(t, unloaded.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong), gpu.ErrDriverNotLoaded)
	require.ErrorContains(t, unloaded.SetTimeslice(t.Context(), someGPU, "2ms"), `unsupported interval "2ms"`)
}

func TestSetTimeslice_ProgramHangs_Killed(t *testing.T) {
	t.Parallel()
	tool := scripted(t, "exec sleep 3600")
	tool.Timeout = 100 * time.Millisecond
	err := tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong)
	require.ErrorIs(t, err, gpu.ErrTimeout)
	require.ErrorContains(t, err, "check whether nvidia-smi works on the node")
	require.Eventually(t, func() bool {
		_, running := errors.AsType[*RunningError](tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong))
		return !running
	}, longTimeout, time.Millisecond, "a program that was killed is gone")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, scripted(t, "exec sleep 3600").SetTimeslice(ctx, someGPU, gpu.IntervalLong), context.Canceled)

	// A child of the program that keeps its output open does not delay the call.
	tool = scripted(t, "sleep 3600 & wait")
	tool.Timeout = 100 * time.Millisecond
	require.ErrorIs(t, tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong), gpu.ErrTimeout)
}

// The program of a simulated node sets the interval of its GPUs.
func TestSetTimeslice_SimulatedNode_IntervalInForce(t *testing.T) {
	t.Parallel()
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	tool := &Tool{Find: func() (Install, error) {
		root, err := hostfs.New(node.Root()).FindDriver("")
		if err != nil {
			return Install{}, err
		}
		program, _ := root.Tool("nvidia-smi")
		return Install{Program: program, Library: root.Library, Root: root.HostPath}, nil
	}, Timeout: longTimeout}
	id := gpu.UUID(node.Model.Identities()[1].UUID)
	intervals := func() (found []model.TimeSlice) {
		for _, g := range node.Model.Snapshot().GPUs {
			found = append(found, g.TimeSlice)
		}
		return found
	}
	require.NoError(t, tool.SetTimeslice(t.Context(), id, gpu.IntervalMedium))
	assert.Equal(t, []model.TimeSlice{0, 2}, intervals())
	require.NoError(t, tool.SetTimeslice(t.Context(), id, gpu.IntervalDefault))
	assert.Equal(t, []model.TimeSlice{0, 0}, intervals())

	require.ErrorIs(t, tool.SetTimeslice(t.Context(), someGPU, gpu.IntervalLong), gpu.ErrNotFound)
	node.UnloadDriver()
	require.ErrorIs(t, tool.SetTimeslice(t.Context(), id, gpu.IntervalLong), gpu.ErrDriverNotLoaded)
	node.LoadDriver()
	assert.Equal(t, []model.TimeSlice{0, 0}, intervals())
}
