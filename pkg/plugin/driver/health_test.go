package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// healthy is a node's health that a test changes.
type healthy struct {
	mu      sync.Mutex
	devices []HealthDevice
	of      map[gpu.UUID]DeviceHealth
	// unchecked are GPUs that are not checked any more; others are checked whenever their health is read.
	unchecked map[gpu.UUID]bool
	// more and other are closed at a change of the devices, and of their health.
	more, other chan struct{}
	// during is called once while the devices are read.
	during func()
	// earlier is the health that a process before has found; nil: all were healthy.
	earlier func(d HealthDevice) DeviceHealth
}

func newHealthy() *healthy {
	return &healthy{
		devices: []HealthDevice{
			{Pool: "n0/monitor", Name: "monitor", Type: gpu.TypeMonitor},
			{Pool: "n0/gpu-b", Name: "gpu-b-ts", Type: gpu.TypeTimeSlice, GPU: "B"}, {Pool: "n0", Name: "gpu-a", Type: gpu.TypeGPU, GPU: "A"},
			{Pool: "n0/gpu-b", Name: "gpu-b-mig-1g-0", Type: gpu.TypeMIG, GPU: "B"},
		},
		of:        map[gpu.UUID]DeviceHealth{"A": {State: Healthy, Checked: time.Now()}, "B": {State: Healthy, Checked: time.Now()}},
		unchecked: map[gpu.UUID]bool{}, more: make(chan struct{}), other: make(chan struct{}),
	}
}

func (h *healthy) port() *Health {
	return &Health{
		Devices: func() []HealthDevice {
			h.mu.Lock()
			during, devices := h.during, h.devices
			h.during = nil
			h.mu.Unlock()
			if during != nil {
				defer during()
			}
			return devices
		},
		Of: func(d HealthDevice) DeviceHealth {
			h.mu.Lock()
			defer h.mu.Unlock()
			health := h.of[d.GPU]
			if !h.unchecked[d.GPU] {
				health.Checked = time.Now()
			}
			return health
		},
		Changed: func() (devices, health <-chan struct{}) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.more, h.other
		},
	}
}

// set changes the health of a GPU; without news its watchers do not learn of it.
func (h *healthy) set(id gpu.UUID, now DeviceHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[id] = now
	close(h.other)
	h.other = make(chan struct{})
}

// advertise changes the devices.
func (h *healthy) advertise(devices ...HealthDevice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices = devices
	close(h.more)
	h.more = make(chan struct{})
}

// uncheck makes the last check of a GPU the present one.
func (h *healthy) uncheck(id gpu.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unchecked[id] = true
	now := h.of[id]
	now.Checked = time.Now()
	h.of[id] = now
}

// stream watches in a bubble. next returns the reports since its last call.
func stream(t *testing.T, h *healthy) (next func() []kubeletplugin.DeviceHealthReport) {
	t.Helper()
	reports := make(chan kubeletplugin.DeviceHealthReport)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var mu sync.Mutex
	var got []kubeletplugin.DeviceHealthReport
	watching.Go(func() {
		defer close(reports)
		assert.NoError(t, New(Options{Health: h.port()}).WatchHealthStatus(ctx, reports))
	})
	watching.Go(func() {
		for r := range reports {
			mu.Lock()
			got = append(got, r)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	return func() []kubeletplugin.DeviceHealthReport {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		now := got
		got = nil
		return now
	}
}

// lines lists the devices of a report.
func lines(report kubeletplugin.DeviceHealthReport) (all []string) {
	for _, d := range report.Devices {
		line := fmt.Sprintf("%s/%s %s", d.PoolName, d.DeviceName, d.Health)
		if d.Message != "" {
			line += ": " + d.Message
		}
		all = append(all, line)
	}
	return all
}

// TestWatchHealth_Changes_OneReportEach: all devices are reported at once in their order, then at each change of the health or the devices,
// and 10 s after the last report. Monitor devices are always healthy.
func TestWatchHealth_Changes_OneReportEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealthy()
		next := stream(t, h)
		first := next()
		require.Len(t, first, 1)
		assert.Equal(t, []string{
			"n0/gpu-a Healthy", "n0/gpu-b/gpu-b-mig-1g-0 Healthy", "n0/gpu-b/gpu-b-ts Healthy", "n0/monitor/monitor Healthy",
		}, lines(first[0]))
		assert.Equal(t, time.Now(), first[0].Devices[0].LastUpdated)

		time.Sleep(4 * time.Second)
		h.set("B", DeviceHealth{State: Unhealthy, Message: "XID 79: reset it"})
		second := next()
		require.Len(t, second, 1)
		sick := []string{
			"n0/gpu-a Healthy", "n0/gpu-b/gpu-b-mig-1g-0 Unhealthy: XID 79: reset it", "n0/gpu-b/gpu-b-ts Unhealthy: XID 79: reset it",
			"n0/monitor/monitor Healthy",
		}
		assert.Equal(t, sick, lines(second[0]))

		time.Sleep(healthPeriod - time.Nanosecond)
		assert.Empty(t, next())
		time.Sleep(time.Nanosecond)
		third := next()
		require.Len(t, third, 1)
		assert.Equal(t, sick, lines(third[0]))

		h.set("B", DeviceHealth{State: Unhealthy, Message: "XID 79: reset it"})
		h.set("A", DeviceHealth{State: Healthy, Message: ""})
		assert.Empty(t, next(), "news that change no status of a pod")

		h.advertise(HealthDevice{Pool: "n0", Name: "gpu-b", Type: gpu.TypeGPU, GPU: "B"})
		fourth := next()
		require.Len(t, fourth, 1)
		assert.Equal(t, []string{"n0/gpu-b Unhealthy: XID 79: reset it"}, lines(fourth[0]))
		h.set("B", DeviceHealth{State: Healthy})
		require.Len(t, next(), 1)
		time.Sleep(3 * healthPeriod)
		assert.Len(t, next(), 3)
	})
}

// TestWatchHealth_ChangeDuringAReport_NotMissed: the devices of the report were read before.
func TestWatchHealth_ChangeDuringAReport_NotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealthy()
		h.during = func() { h.advertise(HealthDevice{Pool: "n0", Name: "gpu-b", Type: gpu.TypeGPU, GPU: "B"}) }
		reports := stream(t, h)()
		require.Len(t, reports, 2)
		assert.Equal(t, []string{"n0/gpu-b Healthy"}, lines(reports[1]))
	})
}

// TestWatchHealth_NoCheck_UnknownAfter30s, also without news. A problem that was found stays known.
func TestWatchHealth_NoCheck_UnknownAfter30s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealthy()
		h.advertise(HealthDevice{Pool: "n0", Name: "gpu-a", Type: gpu.TypeGPU, GPU: "A"}, HealthDevice{Pool: "n0", Name: "gpu-b", Type: gpu.TypeGPU, GPU: "B"})
		h.set("B", DeviceHealth{State: Unhealthy, Message: "lost"})
		h.uncheck("A")
		h.uncheck("B")
		next := stream(t, h)
		for range 4 { // until 30 s have passed, and not more
			reports := next()
			require.Len(t, reports, 1)
			assert.Equal(t, []string{"n0/gpu-a Healthy", "n0/gpu-b Unhealthy: lost"}, lines(reports[0]))
			time.Sleep(healthPeriod)
		}
		reports := next()
		require.Len(t, reports, 1)
		assert.Equal(t, []string{"n0/gpu-a Unknown: " + notChecked, "n0/gpu-b Unhealthy: lost"}, lines(reports[0]))
	})
	assert.Equal(t, DeviceHealth{State: HealthUnknown, Message: notChecked}, DeviceHealth{}.At(time.Now()))
	said := DeviceHealth{State: HealthUnknown, Message: "no driver"}
	assert.Equal(t, said, said.At(time.Now()))
}

// TestWatchHealth_KubeletGone_Returns although its stream takes no report.
func TestWatchHealth_KubeletGone_Returns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- New(Options{Health: newHealthy().port()}).WatchHealthStatus(ctx, make(chan kubeletplugin.DeviceHealthReport))
		}()
		synctest.Wait()
		stop()
		require.NoError(t, <-ended)
	})
}

// TestServer_Health_BothVersions: kubelets up to 1.36 know v1alpha1 alone. A stream that the kubelet keeps open neither counts as a call nor
// holds the server up.
func TestServer_Health_BothVersions(t *testing.T) {
	t.Parallel()
	h := newHealthy()
	s := serveWith(t, func(o *Options) { o.Health = h.port() }, nil)
	registrar, _ := s.register(t)
	info, err := registrar.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	assert.Subset(t, info.SupportedVersions, []string{"v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"})
	connection := dial(t, filepath.Join(s.Config.PluginDir(), "dra-pod-1.sock"))
	newest, err := healthv1.NewDRAResourceHealthClient(connection).NodeWatchResources(t.Context(), &healthv1.NodeWatchResourcesRequest{})
	require.NoError(t, err)
	oldest, err := healthv1alpha1.NewDRAResourceHealthClient(connection).NodeWatchResources(t.Context(), &healthv1alpha1.NodeWatchResourcesRequest{})
	require.NoError(t, err)
	receive := func() {
		a, err := newest.Recv()
		require.NoError(t, err)
		b, err := oldest.Recv()
		require.NoError(t, err)
		require.Len(t, a.Devices, 4)
		require.Len(t, b.Devices, 4)
		for i, d := range a.Devices {
			assert.Equal(t, d.Device.DeviceName, b.Devices[i].Device.DeviceName)
			assert.Equal(t, d.Health.String(), b.Devices[i].Health.String())
			assert.Equal(t, d.Message, b.Devices[i].Message)
		}
	}
	receive()
	h.set("A", DeviceHealth{State: Unhealthy, Message: "lost"})
	receive()
	s.stop()
	select {
	case err := <-s.ended:
		require.NoError(t, err)
	case <-time.After(graceTime):
		t.Fatal("an open stream holds the server up")
	}
}

// TestServer_NoHealth_ServiceNotServed: the kubelet does not watch.
func TestServer_NoHealth_ServiceNotServed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	registrar, _ := s.register(t)
	info, err := registrar.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	assert.NotContains(t, info.SupportedVersions, "v1.DRAResourceHealth")
	connection := dial(t, filepath.Join(s.Config.PluginDir(), "dra-pod-1.sock"))
	watch, err := healthv1.NewDRAResourceHealthClient(connection).NodeWatchResources(t.Context(), &healthv1.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	_, err = watch.Recv()
	assert.Equal(t, codes.Unimplemented, status.Code(err))
}
