package mpsd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/debian"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// nvidiaMPS are the driver versions of the packages with NVIDIA's control daemons, by Debian release.
var nvidiaMPS = map[string]model.DriverVersion{"bookworm": "535.261.03", "trixie": "550.163.01"}

// NVIDIA's own control daemons apply the settings of the spec. There is no GPU for their servers.
func TestNVIDIA_ControlDaemon_SettingsOfTheSpec(t *testing.T) {
	t.Parallel()
	for release, driver := range nvidiaMPS {
		for _, hardening := range Hardenings {
			t.Run(release+" "+string(hardening), func(t *testing.T) { testControlDaemon(t, release, driver, hardening) })
		}
	}
}

func testControlDaemon(t *testing.T, release string, driver model.DriverVersion, hardening Hardening) {
	t.Helper()
	pkg := debian.Package{Name: "debian-nvidia-mps-" + release, Package: "nvidia-cuda-mps", Release: release}
	unpacked, err := pkg.Unpacked(t.Context(), !testing.Short())
	if err != nil {
		t.Skipf("NVIDIA's %s of Debian %s is not available: %v", controlProgram, release, err)
	}
	program, err := os.ReadFile(filepath.Join(unpacked, "usr/bin", controlProgram))
	require.NoError(t, err)
	m := newMachine(t, driver)
	m.options.Hardening = hardening
	control := filepath.Join(m.node.Programs(), controlProgram)
	require.NoError(t, errors.Join(os.Remove(control), os.WriteFile(control, program, 0o755)))
	s := m.service()
	for _, c := range []struct {
		memory, reported int64
		percentage       int
	}{{2000, 1024, 50}, {1023, 1023, 0}, {0, 0, 25}, {5 << 10, 5 << 10, 100}} {
		spec := m.spec()
		spec.MemoryMiB, spec.ActiveThreadPercentage = c.memory, c.percentage
		daemon, err := s.Ensure(t.Context(), daemonID, spec, true)
		require.NoError(t, err)
		assert.False(t, daemon.MultiUser)
		assert.Equal(t, gpu.MPSRunning, daemon.State)
		limits, err := s.Limits(t.Context(), daemonID)
		require.NoError(t, err)
		want := gpu.MPSLimits{MemoryMiB: c.reported, ActiveThreadPercentage: float64(c.percentage)}
		assert.Equal(t, gpu.MPSLimitsInForce{Default: want, Servers: map[int]gpu.MPSLimits{}}, limits)
		for _, name := range []string{"control", "log"} {
			assert.True(t, sameFile(filepath.Join(m.dir().pipe(), name), filepath.Join(m.dir().client(), name)), name)
		}
		for _, memory := range []int64{700, 0} {
			spec.MemoryMiB, spec.ActiveThreadPercentage = memory, 0
			_, err = s.RestoreLimits(t.Context(), daemonID, spec)
			require.NoError(t, err)
			limits, err = s.Limits(t.Context(), daemonID)
			require.NoError(t, err)
			assert.Equal(t, gpu.MPSLimits{MemoryMiB: memory}, limits.Default)
		}
		s = m.service()
		assert.Equal(t, daemon.PID, m.ensure(s).PID, "adopted")
		require.NoError(t, s.Stop(t.Context(), daemonID))
		m.gone()
	}
}
