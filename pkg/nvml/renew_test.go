package nvml

import (
	"context"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// minorOf returns the minor number that an inspection shows.
func minorOf(t *testing.T, s *Session) int {
	t.Helper()
	gpus, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Empty(t, faults)
	return gpus[0].Minor
}

// TestSetMIGMode_RenewFailsHalfWay_GPUDroppedUntilNextInspection: after a reset the old handle and the old minor number may belong to
// another GPU, so neither is used until both are known.
func TestSetMIGMode_RenewFailsHalfWay_GPUDroppedUntilNextInspection(t *testing.T) {
	t.Parallel()
	for _, symbol := range []string{"nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMinorNumber"} {
		t.Run(symbol, func(t *testing.T) {
			t.Parallel()
			s, g := seeing(t)
			g.moves = 3
			g.answer(nvml.ERROR_UNKNOWN, symbol)
			require.EqualError(t, s.SetMIGMode(t.Context(), firstGPU, true), symbol+" on GPU 0: NVML UNKNOWN")
			_, err := s.MIGMode(t.Context(), firstGPU)
			require.ErrorIs(t, err, gpu.ErrNotFound)
			require.ErrorIs(t, s.SetMIGMode(t.Context(), firstGPU, false), gpu.ErrNotFound)

			g.answer(nvml.SUCCESS)
			assert.Equal(t, 13, minorOf(t, s))
			require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true), "the mode is in force, and the next try finds it so")
			require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, false))
			assert.Equal(t, 16, minorOf(t, s))
		})
	}
}

// TestSetMIGMode_TakenBack_MinorNumberIsRenewed: the change may have succeeded before it was reverted, which changes the minor number
// twice. If the new number cannot be read, the GPU is left out until the next inspection.
func TestSetMIGMode_TakenBack_MinorNumberIsRenewed(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"it answers": false, "it does not answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const symbol = "nvmlDeviceSetMigMode"
			s, g := seeing(t)
			g.moves = 3
			if fails {
				g.answer(nvml.ERROR_UNKNOWN, "nvmlDeviceGetMinorNumber")
			}
			release := g.block(symbol)
			t.Cleanup(release)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() { failed <- s.SetMIGMode(ctx, firstGPU, true) }()
			require.Eventually(t, func() bool { return g.driver.count(symbol) == 1 }, time.Minute, time.Millisecond)
			cancel()
			require.Eventually(t, func() bool { return s.gate.Blocked(library.GPUAt(0)) != nil }, time.Minute, time.Millisecond)
			release()
			err := <-failed
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, modes{}, g.modes)
			if fails {
				require.ErrorContains(t, err, "reverting the change: nvmlDeviceGetMinorNumber on GPU 0: NVML UNKNOWN")
				_, err = s.MIGMode(t.Context(), firstGPU)
				require.ErrorIs(t, err, gpu.ErrNotFound)
				g.answer(nvml.SUCCESS)
			}
			assert.Equal(t, 16, minorOf(t, s))
		})
	}
}
