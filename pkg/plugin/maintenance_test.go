package plugin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
	"github.com/prism-gpu/prism/test/fakes"
)

// passed records what a monitor is passed.
type passed struct {
	mu         sync.Mutex
	maintained map[gpu.UUID]string
	conditions map[gpu.UUID][]string
	healed     []gpu.UUID
	released   []bool
}

func (p *passed) Maintain(reasons map[gpu.UUID]string) { p.change(func() { p.maintained = reasons }) }

func (p *passed) Conditions(of map[gpu.UUID][]string) { p.change(func() { p.conditions = of }) }

func (p *passed) Heal(id gpu.UUID, _ time.Time) error {
	p.change(func() { p.healed = append(p.healed, id) })
	return nil
}

func (*passed) All() []finding.Finding { return nil }

func (p *passed) Release(until time.Time) {
	p.change(func() { p.released = append(p.released, !until.IsZero()) })
}

func (p *passed) change(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
}

// is waits until something is so.
func (p *passed) is(t *testing.T, what string, so func() bool) {
	t.Helper()
	eventually(t, func() (is bool) {
		p.change(func() { is = so() })
		return is
	}, what)
}

// TestMaintenance_NodeAnnotated_MonitorAndSessionsFollow: the Node is watched once, also for the label of the node's configuration.
func TestMaintenance_NodeAnnotated_MonitorAndSessionsFollow(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.cfg.NodeConfig.Label, n.cfg.NodeConfig.Name = "example.com/config", "default"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", ResourceVersion: "1"}}
	require.NoError(t, n.client.Tracker().Add(node.DeepCopy()))
	n.adapters.GPUClients = func(_ context.Context, g *gpu.GPU) ([]maintenance.Client, error) {
		return []maintenance.Client{{PID: 12, Command: g.DeviceNode(), Pod: "team/train"}}, nil
	}
	p := n.build(t)
	monitor := &passed{}
	m := NewMaintenance(t.Context(), MaintenancePorts{Core: p.Core, API: API{Events: n.events}, Monitor: monitor, Release: monitor.Release}, []string{"GpuXidError"})
	p.node.maintenance = m
	watch := newNodeWatch(n.cfg, API{Background: n.client}, p.layout, m)
	for _, run := range append(watch.parts(), func(ctx context.Context) error { m.Lead(ctx); return nil }) {
		t.Cleanup(fakes.Run(t, run))
	}
	version := "1"
	annotate := func(annotations map[string]string, conditions ...corev1.NodeCondition) {
		version += "0"
		node.ResourceVersion, node.Annotations, node.Status.Conditions = version, annotations, conditions
		_, err := n.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	reported := func(note string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(strings.Join(n.events.Written(), "\n")+"\n", " "+note+"\n") }, note)
	}
	eventually(t, func() bool { return n.watched("nodes") == 1 }, "the Node is watched")
	first, second := n.device(0), n.device(1)
	ids := []gpu.UUID{gpu.UUID(n.model.Identities()[0].UUID), gpu.UUID(n.model.Identities()[1].UUID)}
	annotations := map[string]string{"maintenance." + n.cfg.DriverName + "/" + first: "fan", "heal." + n.cfg.DriverName + "/" + first: "2026-01-02T15:04:05Z"}
	annotate(annotations, corev1.NodeCondition{Type: "GpuXidError", Status: "True", Message: string(ids[1])})
	monitor.is(t, "the monitor is passed all", func() bool {
		return monitor.maintained[ids[0]] == "fan" && len(monitor.healed) == 1 && len(monitor.conditions[ids[1]]) == 1
	})

	rc := n.claim(t, "a", 1)
	require.NoError(t, prepared(t.Context(), p, rc))
	until := time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339)
	annotations["maintenance."+n.cfg.DriverName+"/all"] = ""
	annotations["release."+n.cfg.DriverName+"/"+second] = until
	annotate(annotations)
	reported("GPUCommandInvalid Maintain: Annotation release." + n.cfg.DriverName + "/" + second + " of the node is ignored: claim uid-a has the GPU")
	assert.NoFileExists(t, m.file.Path())

	delete(annotations, "release."+n.cfg.DriverName+"/"+second)
	annotations["release."+n.cfg.DriverName+"/"+first] = until
	annotate(annotations)
	reported("GPUReleased Maintain: GPU " + first + " is released until " + until +
		": a reset is refused until these processes have exited: pid 12 (/dev/nvidia0) of pod team/train")
	monitor.is(t, "sessions are closed", func() bool { return len(monitor.released) == 1 && monitor.released[0] })
	require.FileExists(t, m.file.Path())
	annotate(nil)
	monitor.is(t, "sessions are opened", func() bool { return len(monitor.released) == 2 && !monitor.released[1] })
	assert.NoFileExists(t, m.file.Path())
	assert.Equal(t, 1, n.watched("nodes"))
}

// watched counts the watches of a resource.
func (n *wired) watched(resource string) (count int) {
	for _, action := range n.client.Actions() {
		if action.Matches("watch", resource) {
			count++
		}
	}
	return count
}

// TestGPUClients_ProgramsOfTheRelease_LeftOut by name and namespace.
func TestGPUClients_ProgramsOfTheRelease_LeftOut(t *testing.T) {
	t.Parallel()
	pods := map[string]string{"own": "prism/exporter-x", "tenant": "team/fake", "train": "team/train"}
	c := gpuClients{
		holders: func(_ context.Context, device string) ([]hostfs.Holder, error) {
			assert.Equal(t, "/dev/nvidia3", device)
			return []hostfs.Holder{
				{PID: 1, Program: "prism-exporter", Container: "own"}, {PID: 2, Program: "prism-exporter", Command: "prism-exporter", Container: "tenant"},
				{PID: 3, Program: "python3.12", Command: "python", Container: "train"}, {PID: 4, Program: "python3.12", Container: "unknown", PodUID: "uid"},
				{PID: 5, Program: "prism-kubelet-plugin", Container: "unknown"}, {PID: 6, Program: "nvidia-persistenced"},
			}, nil
		},
		podOf: func(_ context.Context, container string) (string, string, error) {
			namespace, name, known := strings.Cut(pods[container], "/")
			if !known {
				return "", "", errors.New("no answer")
			}
			return namespace, name, nil
		},
		namespace: "prism",
	}
	found, err := c.of(t.Context(), &gpu.GPU{Minor: 3})
	require.NoError(t, err)
	assert.Equal(t, []maintenance.Client{
		{PID: 2, Command: "prism-exporter", Pod: "team/fake"}, {PID: 3, Command: "python", Pod: "team/train"},
		{PID: 4, Command: "python3.12", Pod: "uid"}, {PID: 6, Command: "nvidia-persistenced"},
	}, found)
}

// TestIntervals_NoSession_SetAgain: the driver may have lost all intervals.
func TestIntervals_NoSession_SetAgain(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	p := n.build(t)
	wanted := inSession(p.Machine.Inventory, p.layout.Intervals)
	_, err := wanted()
	require.NotErrorIs(t, err, gpu.ErrDriverNotLoaded)
	p.Machine.Inventory.Close()
	_, err = wanted()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
}
