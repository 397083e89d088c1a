package tool

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
	"github.com/prism-gpu/prism/test/debian"
)

// proveReal is the argument with which the test's program installs a version and tests it with processes that wait.
const proveReal = "prove-real"

// TestProve_RealVersions_ManualWith2023Only: 2022.4.2 takes a process for another one, which has the same process ids in its own container.
func TestProve_RealVersions_ManualWith2023Only(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces")
	}
	programs := filepath.Join(t.TempDir(), "programs")
	output, err := exec.CommandContext(t.Context(), "../native/build.sh", programs).CombinedOutput()
	require.NoError(t, err, string(output))
	require.NoError(t, copyProgram(os.Args[0], filepath.Join(programs, "self")))
	for version, c := range map[string]struct{ release, manual string }{
		"2022.4.2": {"bookworm", "recording processes that wait in several containers: "}, "2023.4.4": {"trixie", ""},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			unpacked, err := debian.NsightSystems(c.release).Unpacked(t.Context(), !testing.Short())
			if err != nil {
				t.Skipf("Nsight Systems of Debian %s is not available: %v", c.release, err)
			}
			tools := t.TempDir()
			command := exec.CommandContext(t.Context(), filepath.Join(programs, "self"), proveReal, programs, unpacked, version, tools)
			command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
			output, err := command.CombinedOutput()
			require.NoError(t, err, string(output))
			all, err := manifest.List(tools)
			require.NoError(t, err)
			require.Len(t, all, 1)
			t.Logf("%s: %s", version, all[0].Manual)
			assert.NotEmpty(t, all[0].Launch)
			assert.Contains(t, all[0].Manual, c.manual)
			assert.Equal(t, c.manual == "", all[0].Manual == "")
		})
	}
}

// proveAsInContainer installs a version and tests it with processes that wait: PROGRAMS IMAGE VERSION TOOLS. Its mounts are its own: in /run/prism, prism-run finds the
// files of a container.
func proveAsInContainer(ctx context.Context, args []string) error {
	const container, programs = "/run/prism", "/run/prism/programs"
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, path := range []string{"/run", "/dev/shm"} {
		err = errors.Join(err, unix.Mount("tmpfs", path, "tmpfs", 0, ""))
	}
	err = errors.Join(err, os.MkdirAll(programs, 0o755), unix.Mount(args[0], programs, "", unix.MS_BIND, ""), unix.Mount("proc", "/proc", "proc", 0, ""))
	if err != nil {
		return err
	}
	p := Prover{
		Importer: Importer{Source: Source{Version: args[2], Path: args[1] + "/usr/lib/nsight-systems"}, Self: programs + "/self"}, Programs: programs,
		Container: container,
	}
	installed, err := p.Install(ctx, args[3])
	if err != nil {
		return err
	}
	installed.Manual = p.proveManual(ctx, installed)
	return installed.Write(installed.Dir)
}
