package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/session"
	"github.com/prism-gpu/prism/pkg/profiler/tool"
	"github.com/prism-gpu/prism/test/debian"
)

// record records once with NVIDIA's own nsys, without counters: PROGRAMS IMAGE VERSION DIR MANUAL.
func record(args []string) error {
	if err := enter(args[0]); err != nil {
		return err
	}
	ctx := context.Background()
	r, changed, err := runnerOf(ctx, args[1], args[2], args[3])
	if err != nil {
		return err
	}
	o := order(claimA, gpuA)
	o.Manual = args[4] == "manual"
	commands, err := nsight.Counters(nsight.CounterSwitches{Devices: []int{0}, FrequencyHz: 10}, r.tool(), o.Manual)
	if err != nil {
		return err
	}
	commands.Run, commands.Start = withoutGPUs(commands.Run), withoutGPUs(commands.Start)
	recording, err := r.begin(ctx, &o, commands, changed)
	if err != nil {
		return err
	}
	sent := 0
	for e := range recording.events() {
		fmt.Fprintln(os.Stdout, e.reason)
		switch {
		case e.failed != nil:
			return errors.New(e.failed.message)
		case o.Manual && sent < 2:
			if err := send(filepath.Join(r.dir, claimA), &sent, []v1alpha1.SessionVerb{v1alpha1.SessionStart, v1alpha1.SessionStop}[sent]); err != nil {
				return err
			}
		default:
			recording.finish()
		}
	}
	fmt.Fprintln(os.Stdout, recording.result().reason)
	return nil
}

// runnerOf returns the runner of a collector in its container, and the changes of its directory.
func runnerOf(ctx context.Context, image, version, dir string) (*runner, <-chan struct{}, error) {
	c := Collector{
		Source: tool.Source{Version: version, Path: image}, Self: programs + "/prism-tool", Programs: programs, Dir: dir, Work: work,
	}
	program, err := c.Program(ctx)
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	changed := make(chan struct{}, 1)
	go func() {
		for range watcher.Events {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	r, err := c.runner(program, root, watcher)
	return r, changed, err
}

// withoutGPUs returns the switches that do not need a GPU.
func withoutGPUs(switches []string) (others []string) {
	for _, s := range switches {
		if !strings.HasPrefix(s, "--gpu-metrics") {
			others = append(others, s)
		}
	}
	return others
}

// image returns the directory of NVIDIA's own Nsight Systems.
func image(t *testing.T, release string) string {
	t.Helper()
	unpacked, err := debian.NsightSystems(release).Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("Nsight Systems of Debian %s is not available: %v", release, err)
	}
	return filepath.Join(unpacked, "usr/lib/nsight-systems")
}

// TestChoose_RealVersionsWithoutGPU_Unsupported: both list no GPU, and their sets of metrics.
func TestChoose_RealVersionsWithoutGPU_Unsupported(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		t.Skip("this machine has a GPU")
	}
	for release, version := range map[string]string{"bookworm": "2022.4.2", "trixie": "2023.4.4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			path := image(t, release)
			r := local(t, "", "")
			program, err := tool.Source{Version: version, Path: path}.Program(t.Context())
			require.NoError(t, err)
			assert.NotEmpty(t, program.Importer)
			r.program = program
			o := order(claimA, gpuA)
			_, is := choose(t.Context(), r, &o)
			assert.Equal(t, outcome{reason: counters.Unsupported, message: uuidA + ": NVIDIA GPUs not found, feature is not available"}, is)
			argument, is := metricSet(t.Context(), r, "ga10x")
			assert.Zero(t, is)
			assert.Equal(t, map[string]string{"2022.4.2": "3", "2023.4.4": "ga10x"}[version], argument)
		})
	}
}

// TestProcess_RealVersions_Recorded: nsys records beside the process that does nothing, which loads no library of nsys.
func TestProcess_RealVersions_Recorded(t *testing.T) {
	t.Parallel()
	for release, version := range map[string]string{"bookworm": "2022.4.2", "trixie": "2023.4.4"} {
		for _, kind := range []string{"at once", "manual"} {
			t.Run(version+" "+kind, func(t *testing.T) {
				t.Parallel()
				path, dir, from := image(t, release), t.TempDir(), programsDir(t)
				for _, folder := range []string{counters.InboxDir, filepath.Join(counters.PlanDir, session.ControlFolder)} {
					require.NoError(t, os.MkdirAll(filepath.Join(dir, claimA, folder), 0o700))
				}
				command := exec.CommandContext(t.Context(), filepath.Join(from, "prism-tool"), recordCommand, from, path, version, dir, kind)
				command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
				command.Stderr = os.Stderr
				output, err := command.Output()
				require.NoError(t, err, string(output))
				want := "Recording\nEnded\n"
				if kind == "manual" {
					want = "Waiting\nRecording\nWaiting\nFailed\n" // it exited without an order to
				}
				assert.Equal(t, want, string(output))
				reports, err := filepath.Glob(filepath.Join(dir, claimA, counters.InboxDir, "s*", "report.qdstrm"))
				require.NoError(t, err)
				assert.Len(t, reports, 1)
			})
		}
	}
}
