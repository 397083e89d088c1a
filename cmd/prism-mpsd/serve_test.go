package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/mpsd"
)

// TestHardenings_Flag_SameValues: the flag --hardening accepts the values that package mpsd knows, and no other.
func TestHardenings_Flag_SameValues(t *testing.T) {
	t.Parallel()
	for _, hardening := range mpsd.Hardenings {
		_, err := config.LoadMPSD([]string{"--hardening=" + string(hardening)}, func(string) string { return "" })
		require.NoError(t, err)
	}
	_, err := config.LoadMPSD([]string{"--hardening=x"}, func(string) string { return "" })
	require.ErrorContains(t, err, fmt.Sprintf("supported values: %s, %s, %s", mpsd.Hardenings[0], mpsd.Hardenings[1], mpsd.Hardenings[2]))
}

// TestServe_WaitingForAnotherService_EndsOnSignal: the terminating pod may take long, and its successor may be deleted in the meantime.
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
