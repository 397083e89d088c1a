package plugin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
)

// run builds and runs the plugin of a node, which the kubelet registers; stop ends it and returns its error.
func (n *wired) run(t *testing.T) (p *Plugin, stop func() error) {
	t.Helper()
	p, stop = n.start(t)
	n.register(t)
	return p, stop
}

// start runs it without kubelet.
func (n *wired) start(t *testing.T) (p *Plugin, stop func() error) {
	t.Helper()
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return ended(t, done)
	})
	t.Cleanup(func() { _ = stop() })
	return p, stop
}

// TestRun_ConfigurationChanges_PublishedAndSet: it is watched, and both the published devices and the GPUs follow.
func TestRun_ConfigurationChanges_PublishedAndSet(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	_, stop := n.run(t)
	eventually(t, func() bool { return len(n.slices.published()) == 4 }, "the leader publishes")
	eventually(t, func() bool { return n.tool.count(gpu.IntervalLong) == 2 }, "the leader sets intervals")
	// A watch of the fake client does not return earlier changes.
	eventually(t, func() bool {
		return slices.ContainsFunc(n.client.Actions(), func(a clienttesting.Action) bool { return a.Matches("watch", "configmaps") })
	}, "the configuration is watched")
	_, err := n.client.CoreV1().ConfigMaps("ns").Update(t.Context(), configMap("timeslice", gpu.IntervalMedium), metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool { return n.tool.count(gpu.IntervalMedium) == 2 }, "intervals follow")
	eventually(t, func() bool {
		whole, found := n.slices.published()[n.device(0)]
		return found && len(whole.Taints) > 0 || !found && len(n.slices.published()) > 0
	}, "what is published follows")
	require.NoError(t, stop())
}

// TestRun_DroppedTaints_Reported by the publishing part.
func TestRun_DroppedTaints_Reported(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.run(t)
	n.awaitEvent(t, "ResourceSliceFieldsDropped")
}

// awaitEvent waits for an Event of that reason.
func (n *wired) awaitEvent(t *testing.T, reason string) {
	t.Helper()
	eventually(t, func() bool { return strings.Contains(strings.Join(n.events.Written(), "\n"), " "+reason+" ") }, reason)
}

// TestRun_InterruptedClaim_RolledBackByLeader: no call of the kubelet has to come for it.
func TestRun_InterruptedClaim_RolledBackByLeader(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	records, err := checkpoint.Open(disk.OS{}, n.cfg.PluginDir())
	require.NoError(t, err)
	require.NoError(t, records.Put(&checkpoint.Record{
		Claim: checkpoint.Claim{UID: "uid", Namespace: "ns", Name: "claim"}, BootID: "boot", Writer: testVersion, State: checkpoint.Intent,
	}))
	p, _ := n.run(t)
	require.Empty(t, p.Damaged)
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(n.cfg.PluginDir(), "claims", "uid.json"))
		return os.IsNotExist(err)
	}, "the record")
}

// TestRun_DriverLoaded_GPUsPublished: the inventory is inspected again, and Events say so.
func TestRun_DriverLoaded_GPUsPublished(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	version, _ := n.model.Driver()
	n.model.Unload()
	n.run(t)
	n.awaitEvent(t, "NVIDIADriverUnavailable")
	require.NoError(t, n.model.Load(version))
	n.awaitEvent(t, "NVIDIADriverAvailable")
	eventually(t, func() bool { return len(n.slices.published()) == 4 }, "the GPUs are published")
}

// TestRun_OtherComponentAppears_ReportedAndTainted, and its end is noticed.
func TestRun_OtherComponentAppears_ReportedAndTainted(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.occupied.Store(true)
	n.run(t)
	n.awaitEvent(t, "AllocationConflict")
	n.occupied.Store(false)
	n.awaitEvent(t, "AllocationConflictResolved")
}

// TestRun_HookOfOtherVersion_Removed once its process is gone.
func TestRun_HookOfOtherVersion_Removed(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	image := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	n.adapters.HookImage = image
	older, err := cdi.Hooks{Disk: disk.OS{}, Dir: n.cfg.ProgramsDir()}.Install("older", cdi.Program{Name: cdi.HookName, Image: image})
	require.NoError(t, err)
	for _, name := range profiler.Programs {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(older.Path), name), nil, 0o600))
	}
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	require.FileExists(t, older.Path, "its process serves")
	older.Release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	eventually(t, func() bool { _, err := os.Stat(filepath.Dir(older.Path)); return os.IsNotExist(err) }, older.Path)
	cancel()
	require.NoError(t, ended(t, done))
}

// TestRun_Endpoints_Served: the kubelet's sockets, probes and metrics.
func TestRun_Endpoints_Served(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	n.cfg.Serving.HTTPEndpoint = free.Addr().String()
	n.start(t)
	get := func(path string) string {
		response, err := http.Get("http://" + n.cfg.Serving.HTTPEndpoint + path)
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	eventually(t, func() bool { return strings.Contains(get("/metrics"), "prism_devices") }, "metrics")
	assert.Contains(t, get("/readyz"), "the kubelet has not registered this plugin yet")
	n.register(t)
	assert.Contains(t, get("/readyz"), "ok")
}

// TestRun_StatusPending_WrittenBeforeTheEnd: also the claim that was prepared last gets its status.
func TestRun_StatusPending_WrittenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	rc := n.claim(t, "a", 0)
	p, stop := n.run(t)
	require.NoError(t, prepared(t.Context(), p, rc))
	require.NoError(t, stop())
	assert.Len(t, n.status(t, rc), 1)
}

// TestRun_KubeletCannotBeServed_Ends with the error, so that the pod is started again.
func TestRun_KubeletCannotBeServed_Ends(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	cause := errors.New("the socket is gone")
	p.Kubelet().HandleError(t.Context(), cause, "serving")
	require.ErrorIs(t, ended(t, done), cause)
}
