package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
)

// TestServe_WaitingForAnotherService_EndsOnSignal: the pod that is terminating may take long, and its successor may be deleted meanwhile.
func TestServe_WaitingForAnotherService_EndsOnSignal(t *testing.T) {
	t.Parallel()
	cfg := &config.MPSD{RunDir: t.TempDir(), HostRoot: t.TempDir()}
	require.NoError(t, os.MkdirAll(cfg.DaemonsDir(), 0o755))
	release, err := disk.OS{}.Hold(cfg.DaemonsDir(), false)
	require.NoError(t, err)
	t.Cleanup(release)
	ctx, signal := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, cfg) }()
	signal()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
	require.NoFileExists(t, cfg.Socket())
}
