package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// gpuStates is the health of GPUs in a test; GPUs without an entry are healthy.
type gpuStates struct {
	mu      sync.Mutex
	of      map[gpu.UUID]gpuHealth
	changed chan struct{}
}

func newGPUStates() *gpuStates {
	return &gpuStates{of: map[gpu.UUID]gpuHealth{}, changed: make(chan struct{})}
}

func (s *gpuStates) Health(id gpu.UUID) gpuHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	if health, known := s.of[id]; known {
		return health
	}
	return gpuHealth{State: driver.Healthy, Checked: time.Now()}
}

func (s *gpuStates) Text(f *finding.Finding) string {
	return "the GPU has " + string(f.Key) + f.Note
}

func (s *gpuStates) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *gpuStates) set(id gpu.UUID, health gpuHealth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[id] = health
	close(s.changed)
	s.changed = make(chan struct{})
}

// healthNode is a plugin on a node with two GPUs, and the reports of their health.
type healthNode struct {
	*wired
	plugin  *Plugin
	gpus    *gpuStates
	reports *healthReports
	// read counts how often the records were read; unread is why they cannot be.
	read   int
	unread error
}

func newHealthNode(t *testing.T, modes string) *healthNode {
	t.Helper()
	n := &healthNode{wired: newWired(t), gpus: newGPUStates()}
	n.cfg.MonitorDevices, n.cfg.PerfmonDevices = config.MonitorPerNode, config.PerfmonPerGPU
	if modes != "" {
		configured := configMap("whole", gpu.IntervalLong)
		configured.Data["default"] = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [" + modes + "], mps: {replicas: 2}}]\n"
		_, err := n.client.CoreV1().ConfigMaps("ns").Update(t.Context(), configured, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	n.plugin = n.build(t)
	n.reports = newHealthReports(healthReportsOptions{
		GPUs: n.gpus, DriverName: n.cfg.DriverName, NodeName: n.cfg.NodeName, Additional: published(n.cfg).Additional, Layout: n.plugin.Layout(),
		Records: func() ([]*checkpoint.Record, error) {
			n.read++
			if n.unread != nil {
				return nil, n.unread
			}
			return n.plugin.Machine.Kept()
		}, Began: time.Now(),
	})
	return n
}

// names lists the reported devices without their types, sorted.
func (n *healthNode) names() (names []string) {
	for _, d := range n.reports.devices() {
		names = append(names, d.Pool+"/"+d.Name)
	}
	slices.Sort(names)
	return names
}

func (n *healthNode) uuid(i int) gpu.UUID { return gpu.UUID(n.model.Identities()[i].UUID) }

// noDriver returns the layout of a node without a driver.
func noDriver(t *testing.T) *layout.Controller {
	t.Helper()
	n := newWired(t)
	n.adapters.Driver = func(string) inventory.Opener {
		return func(context.Context, hostfs.DriverRoot) (inventory.Session, error) {
			return nil, gpu.ErrDriverNotLoaded
		}
	}
	return n.build(t).Layout().Controller
}

// TestHealthReports_Devices_AllPublished: exactly the published devices are reported. Records are read at the start alone.
func TestHealthReports_Devices_AllPublished(t *testing.T) {
	t.Parallel()
	n := newHealthNode(t, "")
	n.slices.mu.Lock()
	want := slices.Sorted(maps.Keys(n.slices.devices))
	n.slices.mu.Unlock()
	require.Contains(t, want, "monitor")
	require.Greater(t, len(want), 6)
	for range 3 {
		var got []string
		for _, d := range n.reports.devices() {
			got = append(got, d.Name)
			assert.Equal(t, d.Type == gpu.TypeMonitor, d.GPU == "", d)
		}
		slices.Sort(got)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, 1, n.read)
	assert.Contains(t, n.names(), "n0/monitor/monitor")
	assert.Contains(t, n.names(), "n0/"+n.device(0)+"/"+n.device(0))
}

// TestHealthReports_DriverGone_DevicesOfClaimsReported until their claims are unprepared: the status of their pods says why they fail.
func TestHealthReports_DriverGone_DevicesOfClaimsReported(t *testing.T) {
	t.Parallel()
	n := newHealthNode(t, "")
	rc := n.claim(t, "a", 0)
	require.NoError(t, prepared(t.Context(), n.plugin, rc))
	all := n.names()
	with := n.reports.Layout
	n.reports.Layout = &Layout{Controller: noDriver(t), failed: with.failed}
	used := []string{"n0/" + n.device(0) + "/" + n.device(0)}
	assert.Equal(t, used, n.names())
	assert.Equal(t, used, n.names())
	n.unread = errors.New("a record cannot be read")
	assert.Equal(t, used, n.names())
	n.unread = nil
	require.NoError(t, unprepared(t.Context(), n.plugin, rc))
	assert.Empty(t, n.names())
	n.reports.Layout = with
	assert.Equal(t, all, n.names())
}

// TestHealthReports_Problems_TaintsAndSentences as new claims on the GPU are refused.
func TestHealthReports_Problems_TaintsAndSentences(t *testing.T) {
	t.Parallel()
	h := newHealthReports(healthReportsOptions{GPUs: newGPUStates(), DriverName: "gpu.example.com"})
	assert.Empty(t, h.problems("GPU-1"))
	states, _ := h.GPUs.(*gpuStates)
	states.set("GPU-1", gpuHealth{State: driver.Unhealthy, Message: "of the GPU", Blocking: []finding.Finding{
		{GPU: "GPU-1", Key: finding.XID, Value: "79", Effect: finding.NoExecute}, {GPU: "GPU-1", Key: finding.Maintenance, Effect: finding.NoSchedule, Note: ": fan"},
	}})
	const fix = "delete the pod so that it is scheduled again"
	assert.Equal(t, []prepare.Problem{
		{
			Taint: resourceapi.DeviceTaint{Key: "gpu.example.com/xid", Value: "79", Effect: resourceapi.DeviceTaintEffectNoExecute},
			Cause: "GPU GPU-1 gets no new claims (xid=79): the GPU has xid", Fix: fix,
		},
		{
			Taint: resourceapi.DeviceTaint{Key: "gpu.example.com/maintenance", Effect: resourceapi.DeviceTaintEffectNoSchedule},
			Cause: "GPU GPU-1 gets no new claims (maintenance): the GPU has maintenance: fan", Fix: fix,
		},
	}, h.problems("GPU-1"))
}

func TestHealthReports_Reasons_CamelCase(t *testing.T) {
	t.Parallel()
	for key, want := range map[finding.Key]string{
		finding.GPULost: "GPULost", finding.RecoveryAction: "RecoveryAction", finding.XID: "XID", finding.Memory: "Memory", finding.Fabric: "Fabric",
		finding.NodeCondition: "NodeCondition", finding.Maintenance: "Unhealthy",
	} {
		assert.Equal(t, want, reasonOf([]finding.Finding{{Key: finding.Maintenance}, {Key: key}}), key)
	}
}

// TestHealthReports_MPSFailed_ThatDeviceAlone: it is tainted and reported as unhealthy until it is restored, by the process that restores it.
func TestHealthReports_MPSFailed_ThatDeviceAlone(t *testing.T) {
	t.Parallel()
	n := newHealthNode(t, "whole, mps")
	n.plugin.Layout().Publisher.Withhold(gpu.TypeMPS, false) // as if the MPS service had answered
	ctx, stop := context.WithCancel(t.Context())
	var leading sync.WaitGroup
	assert.NotContains(t, n.names(), "n0/"+n.device(1)+"/"+n.device(1)+"-mps", "another process knows its state")
	news := n.reports.Layout.failed.next()
	leading.Go(func() { n.reports.lead(ctx, func(*checkpoint.Record) {}) })
	<-news
	defer leading.Wait()
	defer stop()
	assert.Contains(t, n.names(), "n0/"+n.device(1)+"/"+n.device(1)+"-mps")
	for _, failed := range [][]gpu.UUID{{n.uuid(1)}, nil} {
		news := n.reports.Layout.failed.next()
		n.plugin.Layout().failed.set(gpu.TypeMPS, failed)
		<-news
		n.plugin.Layout().Publisher.Publish()
		for _, d := range n.reports.devices() {
			health := n.reports.of(d)
			sick := d.Type == gpu.TypeMPS && slices.Contains(failed, d.GPU)
			assert.Equal(t, sick, health.State == driver.Unhealthy, d)
			assert.Equal(t, sick, health.Reason == "MPSUnavailable", d)
			n.slices.mu.Lock()
			values := slices.ContainsFunc(n.slices.devices[d.Name].Taints, func(taint resourceapi.DeviceTaint) bool { return taint.Value == "failed" })
			n.slices.mu.Unlock()
			assert.Equal(t, sick, values, d)
		}
	}
	n.gpus.set(n.uuid(0), gpuHealth{State: driver.Unhealthy, Message: "lost", Blocking: []finding.Finding{{Key: finding.GPULost}}})
	for _, d := range n.reports.devices() {
		assert.Equal(t, d.GPU == n.uuid(0), n.reports.of(d).Reason == "GPULost", d)
	}
}

// TestHealthReports_Kubelet_SeesTheHealth of the advertised devices in the kubelet's stream.
func TestHealthReports_Kubelet_SeesTheHealth(t *testing.T) {
	t.Parallel()
	n := newHealthNode(t, "")
	handler := driver.New(driver.Options{Health: n.reports.port()})
	ctx, stop := context.WithCancel(t.Context())
	reports, ended := make(chan kubeletplugin.DeviceHealthReport), make(chan error, 1)
	go func() { ended <- handler.WatchHealthStatus(ctx, reports) }()
	all := <-reports
	require.Len(t, all.Devices, len(n.reports.devices()))
	for _, d := range all.Devices {
		assert.Equal(t, kubeletplugin.HealthStatusHealthy, d.Health, d.DeviceName)
	}
	n.gpus.set(n.uuid(1), gpuHealth{State: driver.Unhealthy, Message: "lost"})
	sick := 0
	for _, d := range (<-reports).Devices {
		if d.Health == kubeletplugin.HealthStatusUnhealthy {
			sick++
			assert.Contains(t, d.DeviceName, n.device(1))
			assert.Equal(t, "lost", d.Message)
		}
	}
	assert.Equal(t, 3, sick, "whole, time-sliced and counters")
	stop()
	require.NoError(t, <-ended)
}

// TestHealthReports_NoSource_NothingReported: nothing else changes.
func TestHealthReports_NoSource_NothingReported(t *testing.T) {
	t.Parallel()
	h := newHealthReports(healthReportsOptions{})
	assert.Nil(t, h.port())
	assert.Nil(t, h.unhealthy())
	assert.Empty(t, h.conditions())
	h.renewed()
	h.lead(t.Context(), nil)
}
