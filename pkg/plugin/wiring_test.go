package plugin

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/test/fakes"
)

// TestBuild_CallInFlight_StatusWaits: status writes for earlier claims do not compete with a claim that is being prepared.
func TestBuild_CallInFlight_StatusWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		p, rc := n.build(t), n.claim(t, "a", 0)
		stop := fakes.Run(t, p.Statuses().Run)
		defer stop()
		end := p.serving.server.Calls.Begin()
		require.NoError(t, prepared(t.Context(), p, rc))
		time.Sleep(5 * statusDelay)
		assert.Empty(t, n.status(t, rc))
		end()
		require.NoError(t, p.Statuses().Drain(t.Context()))
		assert.Len(t, n.status(t, rc), 1)
	})
}

// TestBuild_PreparedClaim_StatusHasStepsAndHardware, which are the transaction's and the inventory's.
func TestBuild_PreparedClaim_StatusHasStepsAndHardware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		p, rc := n.build(t), n.claim(t, "a", 1)
		stop := fakes.Run(t, p.Statuses().Run)
		defer stop()
		require.NoError(t, prepared(t.Context(), p, rc))
		require.NoError(t, p.Statuses().Drain(t.Context()))
		status := n.status(t, rc)
		require.Len(t, status, 1)
		data := string(status[0].Data.Raw)
		assert.Contains(t, data, n.model.Identities()[1].UUID)
		assert.Contains(t, data, `"step":"interval"`)
		assert.Contains(t, data, "NVIDIA H100 80GB HBM3", "of the inventory")
	})
}

// TestBuild_ClaimWaits_StatusHasReason while the call is still in flight: the kubelet reports nothing then.
func TestBuild_ClaimWaits_StatusHasReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		p := n.build(t)
		first, second := n.claim(t, "first", 0), n.claim(t, "second", 0)
		require.NoError(t, prepared(t.Context(), p, first))
		stop := fakes.Run(t, p.Statuses().Run)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() { answered <- prepared(ctx, p, second) }()
		time.Sleep(retryBudget / 2)
		select {
		case err := <-answered:
			require.NoError(t, err)
			assert.Fail(t, "the claim does not wait")
		default:
		}
		status := n.status(t, second)
		require.Len(t, status, 1)
		assert.Equal(t, "PrepareFailed", status[0].Conditions[0].Reason)
		assert.NotContains(t, status[0].Conditions[0].Message, "first")
		cancel()
		require.Error(t, <-answered)
	})
}

// TestBuild_DamagedRecord_ReportedAndCounted at the start, which sets it aside.
func TestBuild_DamagedRecord_ReportedAndCounted(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	path := n.record(t, "uid", "{}")
	p := n.build(t)
	require.Len(t, p.Damaged, 1)
	assert.NoFileExists(t, path)
	assert.Contains(t, strings.Join(n.events.Written(), "\n"), "Warning CheckpointCorrupted")
	assert.InDelta(t, 1, n.metric(t, p, "prism_checkpoints_corrupted_total"), 0)
}

// TestBuild_Metrics_ReadTheParts: published devices, prepared claims and refused claims are in the metrics.
func TestBuild_Metrics_ReadTheParts(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	p, rc := n.build(t), n.claim(t, "a", 0)
	require.NoError(t, prepared(t.Context(), p, rc))
	for name, want := range map[string]float64{
		"prism_devices": 4, "prism_claims": 1, "prism_nvidia_driver_loaded": 1, "prism_prepare_duration_seconds": 1,
		"prism_resourceslice_errors_total": 3, "prism_step": 5,
	} {
		assert.InDelta(t, want, n.metric(t, p, name), 0, name)
	}
	require.NoError(t, unprepared(t.Context(), p, rc))
	assert.Zero(t, n.metric(t, p, "prism_claims"))
}

// TestBuild_OtherComponent_ClaimsWithheld from the first call on.
func TestBuild_OtherComponent_ClaimsWithheld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		n.occupied.Store(true)
		p := n.build(t)
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		require.ErrorContains(t, prepared(ctx, p, n.claim(t, "a", 0)), "withheld")
		require.NotEmpty(t, n.slices.devices)
		for _, device := range n.slices.devices {
			assert.NotEmpty(t, device.Taints, device.Name)
		}
	})
}

// TestBuild_ClaimSharesWithMPSWithoutService_RefusedAtOnce: the node advertises no MPS shares, and the chart's default runs no MPS service. Each
// attempt ends before anything is made, and the GPU is not locked for longer.
func TestBuild_ClaimSharesWithMPSWithoutService_RefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		n.adapters.Services.MPS = func(socket string) mps.Daemons { return client.New(socket) }
		p, rc := n.build(t), n.claim(t, "a", 0)
		rc.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(
			`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"strategy":"MPS"}}`)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err := prepared(ctx, p, rc)
		require.ErrorContains(t, err, "no MPS service runs on this node: set the chart value mps.enabled to true")
		require.ErrorContains(t, err, "(will be retried)")
		ctx, stop = context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.NoError(t, unprepared(ctx, p, rc))
		other := n.claim(t, "b", 0)
		other.Status.Allocation.Devices.Config = nil
		require.NoError(t, prepared(ctx, p, other))
	})
}

// TestBuild_DeviceNotAdvertised_RetriedUntilLeading: as long as another process leads, it may advertise another layout.
func TestBuild_DeviceNotAdvertised_RetriedUntilLeading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		p, rc := n.build(t), n.claim(t, "a", 0)
		rc.Status.Allocation.Devices.Results[0].Device += "-mig-19-0"
		rc.Status.Allocation.Devices.Config = nil
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		require.ErrorContains(t, prepared(ctx, p, rc), "(will be retried)")
		p.Layout().Lead()
		require.ErrorContains(t, prepared(t.Context(), p, rc), "(not retryable)")
	})
}

// TestBuild_CleanupPending_DevicesTainted as long as it is.
func TestBuild_CleanupPending_DevicesTainted(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	p := n.build(t)
	tainted := func() (names int) {
		p.layout.Publisher.Publish()
		for _, device := range n.slices.devices {
			if len(device.Taints) > 0 {
				names++
			}
		}
		return names
	}
	assert.Zero(t, tainted())
	n.options.PendingCleanups([]gpu.PendingCleanup{{
		GPU: gpu.UUID(n.model.Identities()[0].UUID), Uses: []gpu.Use{{Type: gpu.TypeGPU, Device: gpu.DeviceName(n.device(0))}},
	}})
	assert.Equal(t, 2, tainted())
}
