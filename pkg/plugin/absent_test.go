package plugin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// limit bounds how long a test waits for something that must happen.
const limit = time.Minute

// bareNode is a node without a GPU and the API server that a plugin of it would ask.
type bareNode struct {
	cfg *config.Plugin
	// asked counts requests to the API server, waits contains the length of each wait, and ticks ends one.
	asked atomic.Int64
	waits chan time.Duration
	ticks chan time.Time
}

func newBareNode(t *testing.T) *bareNode {
	t.Helper()
	n := &bareNode{waits: make(chan time.Duration), ticks: make(chan time.Time)}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(api.Close)
	root := t.TempDir()
	kubeconfig := filepath.Join(root, "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: api.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, kubeconfig))
	yes := true
	n.cfg = &config.Plugin{
		DriverName: "gpu.prism.dev", NodeName: "n0", Kubeconfig: kubeconfig, KubeAPI: config.Rate{QPS: -1, Burst: 1},
		Paths: config.Paths{
			HostRoot: filepath.Join(root, "host"), CDIRoot: filepath.Join(root, "cdi"), KubeletPlugins: filepath.Join(root, "plugins"),
			StateDir:         filepath.Join(root, "state"),
			KubeletRegistrar: filepath.Join(root, "registry"), KubeletPodResources: filepath.Join(root, "pod-resources.sock"),
		},
		Driver: config.Driver{FailOnInitError: &yes},
	}
	n.write(t, "host/sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n")
	n.write(t, "host/proc/sys/kernel/random/boot_id", "boot\n")
	return n
}

func (n *bareNode) write(t *testing.T, path, text string) {
	t.Helper()
	full := filepath.Join(filepath.Dir(n.cfg.Paths.HostRoot), path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
}

func (n *bareNode) clock() inventory.Clock {
	return inventory.Clock{After: func(d time.Duration) <-chan time.Time {
		n.waits <- d
		return n.ticks
	}}
}

// waiting is how long the plugin waits now.
func (n *bareNode) waiting(t *testing.T) time.Duration {
	t.Helper()
	select {
	case d := <-n.waits:
		return d
	case <-time.After(limit):
		require.Fail(t, "the plugin does not wait")
		return 0
	}
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		require.Fail(t, "the plugin does not end")
		return nil
	}
}

// TestServe_NoGPU_IsIdle: without a GPU nothing is asked of the API server, so that there is no Event and no ResourceSlice, nothing is
// written on the node, and failOnInitError has nothing to fail. A GPU that is plugged in is found.
func TestServe_NoGPU_IsIdle(t *testing.T) {
	t.Parallel()
	n := newBareNode(t)
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), n.cfg, System(n.cfg, testVersion), n.clock()) }()
	for range 5 {
		assert.Equal(t, time.Minute, n.waiting(t))
		n.ticks <- time.Time{}
	}
	assert.Equal(t, time.Minute, n.waiting(t))
	assert.Zero(t, n.asked.Load(), "requests to the API server")
	assert.NoDirExists(t, n.cfg.Paths.KubeletPlugins)
	assert.NoDirExists(t, n.cfg.Paths.CDIRoot)

	n.write(t, "host/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
	n.write(t, "host/sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n")
	n.ticks <- time.Time{}
	require.ErrorContains(t, ended(t, done), "exiting because failOnInitError is true", "the plugin starts, and finds no driver here")
}

// TestServe_NoGPUAndRecords_Serves: claims that were prepared when the node had a GPU can be unprepared.
func TestServe_NoGPUAndRecords_Serves(t *testing.T) {
	t.Parallel()
	n := newBareNode(t)
	n.write(t, "plugins/gpu.prism.dev/claims/uid.json", "{}")
	done := make(chan error, 1)
	go func() { done <- AwaitGPU(t.Context(), n.cfg, System(n.cfg, testVersion), n.clock()) }()
	require.NoError(t, ended(t, done))
}

// TestServe_NoGPU_ReportsServed: otherwise each list would name the node as silent. Nothing is written on the node.
func TestServe_NoGPU_ReportsServed(t *testing.T) {
	t.Parallel()
	n := newBareNode(t)
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	n.cfg.Profiler.Endpoint, n.cfg.Profiler.Certificate = free.Addr().String(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, n.cfg, System(n.cfg, testVersion), n.clock()) }()
	require.Eventually(t, func() bool {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", n.cfg.Profiler.Endpoint)
		if err == nil {
			err = connection.Close()
		}
		return err == nil
	}, limit, 10*time.Millisecond)
	assert.NoDirExists(t, n.cfg.ProfilesDir())
	n.waiting(t)
	cancel()
	require.NoError(t, ended(t, done))
}

func TestServe_NoGPU_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	n := newBareNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, n.cfg, System(n.cfg, testVersion), n.clock()) }()
	n.waiting(t)
	cancel()
	require.NoError(t, ended(t, done))
}
