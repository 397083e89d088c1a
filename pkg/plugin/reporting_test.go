package plugin

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestServe_ReportsPortInUse_ClaimsPrepared: reports that cannot be read keep no claim from being prepared.
func TestServe_ReportsPortInUse_ClaimsPrepared(t *testing.T) {
	t.Parallel()
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	n := profilingNode(t, "", "2023.4.4")
	n.cfg.Profiler.Endpoint, n.cfg.Profiler.Certificate = other.Addr().String(), t.TempDir()
	p := n.build(t)
	ctx, stop := context.WithCancel(t.Context())
	r := reporting{p.Machine.State.profiles}
	logged := ""
	r.logger = funcr.New(func(_, args string) {
		logged = args
		require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, withEnvironment)))
		stop()
	}, funcr.Options{})
	require.NoError(t, r.serve(ctx), "an error ends the plugin")
	assert.Contains(t, logged, "address already in use")
}

// TestServeReports_Fails_ServedLater: the port may be that of a version of the plugin that is about to exit.
func TestServeReports_Fails_ServedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began, calls, served := time.Now(), 0, time.Duration(0)
		reporting{&profiles{}}.serveAgain(ctx, func(context.Context) error {
			if calls++; calls <= 2 {
				return unix.EADDRINUSE
			}
			served = time.Since(began)
			stop()
			return nil
		})
		assert.Equal(t, 2*serveRetry, served)
	})
}
