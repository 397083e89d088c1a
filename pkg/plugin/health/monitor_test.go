package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/fakes"
)

const (
	gpuA gpu.UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
	gpuB gpu.UUID = "GPU-bbbbbbbb-0000-4000-8000-000000000000"
)

// node is a node with two GPUs, which outlives its processes.
type node struct {
	t    *testing.T
	dir  string
	boot string
	load string

	mu       sync.Mutex
	readings map[gpu.UUID]gpu.HealthReading
	err      error
	checks   []string
	report   func(gpu.HealthEvent)
}

func newNode(t *testing.T) *node {
	t.Helper()
	none := gpu.RecoveryNone
	n := &node{t: t, dir: t.TempDir(), boot: "boot", load: "load", readings: map[gpu.UUID]gpu.HealthReading{}}
	for _, id := range []gpu.UUID{gpuA, gpuB} {
		n.readings[id] = gpu.HealthReading{UUID: id, Action: &none, Events: true}
	}
	return n
}

// set changes the reading of a GPU.
func (n *node) set(id gpu.UUID, how func(r *gpu.HealthReading)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.readings[id]
	how(&r)
	n.readings[id] = r
}

func (n *node) poll(whole bool, ids ...gpu.UUID) gpu.HealthPoll {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := gpu.HealthPoll{At: time.Now(), Whole: whole, Err: n.err}
	for _, id := range ids {
		if n.err == nil {
			p.Readings = append(p.Readings, n.readings[id])
		}
	}
	return p
}

// process is a process of the plugin on the node.
type process struct {
	*Monitor
	node   *node
	events fakes.Events
	files  disk.Files
	// set are the published taints, in the form of texts.
	set [][]string
}

func (n *node) start(files disk.Files, rules finding.Rules) *process {
	p := &process{node: n, events: make(fakes.Events, 64), files: files}
	p.Monitor = NewMonitor(MonitorOptions{
		Inventory: p, Disk: files, Dir: n.dir, BootID: n.boot, DriverLoad: func() string { return n.load }, Rules: rules, Events: p.events,
		SetTaints: func(rules []publish.TaintRule) {
			n.mu.Lock()
			defer n.mu.Unlock()
			p.set = append(p.set, texts(rules))
		},
	})
	return p
}

func texts(rules []publish.TaintRule) (all []string) {
	for _, r := range rules {
		for id := range r.GPUs {
			all = append(all, fmt.Sprintf("%s %s=%s %s", id[4:5], r.Name, r.Value, r.Effect))
		}
	}
	return all
}

func (p *process) published() [][]string {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	return append([][]string{}, p.set...)
}

// Current returns the facts of both GPUs.
func (p *process) Current() *inventory.View {
	return &inventory.View{Node: &gpu.Node{GPUs: []gpu.GPU{{UUID: gpuA, Index: 0, ID: "aaaaaaaa"}, {UUID: gpuB, Index: 1, ID: "bbbbbbbb"}}}}
}

// Check polls one GPU.
func (p *process) Check(_ context.Context, id gpu.UUID) {
	p.node.mu.Lock()
	p.node.checks = append(p.node.checks, fmt.Sprintf("%s at %v", id, time.Since(epoch)))
	p.node.mu.Unlock()
	p.Polled(p.node.poll(false, id))
}

// epoch is the time at which a bubble of synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// WatchHealth passes the events of the test on.
func (p *process) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	p.node.mu.Lock()
	p.node.report = report
	p.node.mu.Unlock()
	<-ctx.Done()
	return nil
}

// polls polls all GPUs every 10 s.
func (p *process) polls(times int) {
	for range times {
		p.Polled(p.node.poll(true, gpuA, gpuB))
		time.Sleep(10 * time.Second)
		synctest.Wait()
	}
}

func lost(r *gpu.HealthReading)   { *r = gpu.HealthReading{UUID: r.UUID, Err: gpu.ErrLost} }
func fabric(r *gpu.HealthReading) { r.Fabric = gpu.FabricNotReady }

// bubble runs a test in a bubble with a leading process that has polled once.
func bubble(t *testing.T, rules finding.Rules, test func(t *testing.T, n *node, p *process)) {
	t.Helper()
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		p := n.start(disk.OS{}, rules)
		assert.Empty(t, p.Load())
		p.polls(1)
		p.Lead(t.Context())
		defer fakes.Run(t, p.Run)()
		synctest.Wait()
		test(t, n, p)
	})
}

func TestMonitor_GPULost_TaintedAtOnceUntilThreeCleanPolls(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		assert.Empty(t, p.published())
		assert.Equal(t, Healthy, p.Health(gpuA).State)
		changed := p.Changed()
		n.set(gpuA, lost)
		p.Polled(n.poll(true, gpuA, gpuB))
		assert.Equal(t, [][]string{{"a gpu-lost=lost NoSchedule"}}, p.published(), "before the poll returns")
		<-changed
		assert.Equal(t, []string{"Warning GPUUnhealthy Detect: GPU 0 (" + string(gpuA) + ") gets no new claims (gpu-lost=lost): the GPU is lost: reset it or reboot the node"}, p.events.Written())
		h := p.Health(gpuA)
		assert.Equal(t, Unhealthy, h.State)
		assert.Equal(t, "the GPU is lost: reset it or reboot the node", h.Message)
		assert.Len(t, h.Blocking, 1)
		assert.Equal(t, Healthy, p.Health(gpuB).State)
		assert.EqualValues(t, 1, p.Failures())
		none := gpu.RecoveryNone
		n.set(gpuA, func(r *gpu.HealthReading) { *r = gpu.HealthReading{UUID: gpuA, Action: &none, Events: true} })
		time.Sleep(10 * time.Second)
		for range 9 { // such as after changes of MIG modes
			p.Polled(n.poll(true, gpuA, gpuB))
		}
		assert.Len(t, p.published(), 1, "polls that follow at once count as one")
		time.Sleep(10 * time.Second)
		p.polls(1)
		assert.Len(t, p.published(), 1)
		p.polls(1)
		assert.Equal(t, []string{"Normal GPURecovered Detect: GPU 0 (" + string(gpuA) + ") no longer has the problem gpu-lost=lost, and it gets new claims again"}, p.events.Written())
		assert.Len(t, p.published(), 2)
		assert.Empty(t, p.published()[1])
		assert.Equal(t, Healthy, p.Health(gpuA).State)
	})
}

// TestMonitor_ManyChanges_FirstAtOnceThenEveryFiveSeconds: at most one write of a ResourceSlice in 5 s.
func TestMonitor_ManyChanges_FirstAtOnceThenEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	yes := true
	bubble(t, finding.Rules{XIDs: finding.XIDs{All: &yes}}, func(t *testing.T, n *node, p *process) {
		time.Sleep(time.Second)
		for i := range 20 {
			p.Maintain(map[gpu.UUID]string{gpuA: "x"})
			n.report(gpu.HealthEvent{GPU: gpuB, XID: 48})
			if i%2 == 1 {
				p.Maintain(nil)
			}
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			assert.LessOrEqual(t, len(p.published()), 1+(i+1)/10)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Len(t, p.published(), 2)
		assert.Equal(t, []string{"b xid=48 NoSchedule"}, p.published()[len(p.published())-1])
	})
}

func TestMonitor_AllGPUsLost_AtMostTwoPublications(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		n.set(gpuA, lost)
		n.report(gpu.HealthEvent{GPU: gpuA, XID: 79})
		synctest.Wait()
		n.set(gpuB, lost)
		p.polls(6)
		assert.Equal(t, [][]string{{"a gpu-lost=lost NoSchedule"}, {"a gpu-lost=lost NoSchedule", "b gpu-lost=lost NoSchedule"}}, sorted(p.published()))
	})
}

func sorted(all [][]string) [][]string {
	for _, texts := range all {
		if len(texts) == 2 && texts[0] > texts[1] {
			texts[0], texts[1] = texts[1], texts[0]
		}
	}
	return all
}

// TestMonitor_100000ApplicationErrors_NoWrite: tenants can provoke them.
func TestMonitor_100000ApplicationErrors_NoWrite(t *testing.T) {
	t.Parallel()
	for name, decides := range map[string]bool{"the driver decides": true, "the tables decide": false} {
		bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
			if !decides {
				n.set(gpuA, func(r *gpu.HealthReading) { r.Action = nil })
			}
			before, err := os.ReadFile(filepath.Join(n.dir, fileName))
			require.NoError(t, err)
			codes := []uint64{13, 31, 43, 45, 68, 69, 94, 109}
			for i := range 100_000 {
				n.report(gpu.HealthEvent{GPU: gpuA, XID: codes[i%len(codes)]})
				if i%1000 == 0 {
					time.Sleep(100 * time.Millisecond)
				}
			}
			p.polls(3)
			assert.Empty(t, p.published(), name)
			assert.Empty(t, p.events.Written(), name)
			assert.LessOrEqual(t, len(n.checks), 15, "a GPU is polled once a second")
			after, err := os.ReadFile(filepath.Join(n.dir, fileName))
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after), name)
		})
	}
}

// TestMonitor_Event_PolledAtOnceThenAfterOneAndFiveSeconds: the recovery action may follow the event.
func TestMonitor_Event_PolledAtOnceThenAfterOneAndFiveSeconds(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		begin := time.Since(epoch)
		n.report(gpu.HealthEvent{GPU: gpuA, XID: 154})
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		reset := gpu.RecoveryAction(1)
		n.set(gpuA, func(r *gpu.HealthReading) { r.Action = &reset })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		var want []string
		for _, wait := range []time.Duration{0, time.Second, 5 * time.Second} {
			want = append(want, fmt.Sprintf("%s at %v", gpuA, begin+wait))
		}
		assert.Equal(t, want, n.checks)
		assert.Equal(t, [][]string{{"a recovery-action=gpu-reset NoSchedule"}}, p.published())
		n.report(gpu.HealthEvent{})
		synctest.Wait()
		assert.True(t, strings.HasPrefix(n.checks[3], " at "), "all GPUs are polled")
	})
}

// TestMonitor_Restart_SameTaintsSameBegin: an upgrade of the plugin, and a process that was killed before it has published.
func TestMonitor_Restart_SameTaintsSameBegin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		before := n.start(disk.OS{}, finding.Rules{})
		n.set(gpuA, func(r *gpu.HealthReading) { r.Action = nil })
		before.polls(1)
		before.Lead(ctx)
		n.set(gpuB, lost)
		before.xid(gpu.HealthEvent{GPU: gpuA, XID: 79}, time.Now())
		before.polls(1)
		begin := before.All()
		require.Len(t, begin, 2)
		end()
		time.Sleep(time.Hour)

		after := n.start(disk.OS{}, finding.Rules{NoExecute: map[finding.Key]bool{finding.XID: true}})
		facts := after.Load()
		require.Len(t, facts, 2, "also of a GPU that is lost while no process runs")
		assert.Equal(t, gpuB, facts[1].UUID)
		assert.Equal(t, 1, facts[1].Index)
		after.polls(1)
		assert.Len(t, after.published(), 1, "also a process that does not lead knows them")
		after.Lead(t.Context())
		assert.ElementsMatch(t, []string{"a xid=79 NoExecute", "b gpu-lost=lost NoSchedule"}, after.published()[0])
		for i, f := range after.All() {
			assert.Equal(t, begin[i].Begin, f.Begin)
		}
		assert.Empty(t, after.events.Written(), "the process before has reported them")
	})
}

// TestMonitor_BootOrDriverLoad_StartsWithoutFindings: facts of GPUs outlive a load of the driver, but no boot.
func TestMonitor_BootOrDriverLoad_StartsWithoutFindings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(n *node)
		facts  int
	}{
		"boot":        {func(n *node) { n.boot = "boot 2" }, 0},
		"driver load": {func(n *node) { n.load = "load 2" }, 2},
	} {
		n := newNode(t)
		synctest.Test(t, func(t *testing.T) {
			before := n.start(disk.OS{}, finding.Rules{})
			n.set(gpuA, func(r *gpu.HealthReading) { r.Action = nil })
			n.set(gpuB, lost)
			before.polls(1)
			before.Lead(t.Context())
			before.xid(gpu.HealthEvent{GPU: gpuA, XID: 79}, time.Now())
			before.Maintain(map[gpu.UUID]string{gpuA: "swap"})
			before.output.publish(true)

			c.change(n)
			after := n.start(disk.OS{}, finding.Rules{})
			assert.Len(t, after.Load(), c.facts, name)
			assert.Len(t, after.All(), 1, "%s: maintenance ends with its annotation", name)
			n.load = "load 3"
			before.polls(1)
			assert.Len(t, before.All(), 2, "a process that runs while the driver is loaded again")
		})
	}
}

// TestMonitor_DriverUnavailable_NothingChanges: a problem stays until a poll finds its end, so that the statuses of pods and claims do not change
// while the driver is loaded again.
func TestMonitor_DriverUnavailable_NothingChanges(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		n.set(gpuA, fabric)
		p.polls(1)
		n.err = gpu.ErrDriverNotLoaded
		p.polls(9)
		assert.Len(t, p.published(), 1)
		h := p.Health(gpuA)
		assert.Equal(t, Unhealthy, h.State)
		assert.Equal(t, "the GPU is not registered with the NVSwitch fabric: check nvidia-fabricmanager on the node", h.Message)
		assert.Len(t, h.Blocking, 1)
		h = p.Health(gpuB)
		assert.Equal(t, Unknown, h.State)
		assert.Equal(t, "the NVIDIA driver does not answer: check the driver of the node", h.Message)
		n.err = nil
		p.polls(1)
		assert.Equal(t, Unhealthy, p.Health(gpuA).State)
		n.err = fmt.Errorf("polling: %w", inventory.ErrReleased)
		p.Polled(n.poll(true))
		assert.Equal(t, Unhealthy, p.Health(gpuA).State, "a release is short")
	})
}

// TestMonitor_NoPollFor30Seconds_Unknown: also readers that wait for a change learn it.
func TestMonitor_NoPollFor30Seconds_Unknown(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, _ *node, p *process) {
		p.Polled(p.node.poll(true, gpuA, gpuB))
		synctest.Wait()
		changed := p.Changed()
		begin := time.Now()
		<-changed
		assert.Equal(t, staleAfter, time.Since(begin))
		assert.Equal(t, Unknown, p.Health(gpuA).State)
		assert.Equal(t, Unknown, p.Health("GPU-cccccccc").State)
	})
}

func TestMonitor_MaintenanceAndConditions_BlockUntilWithdrawn(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, _ *node, p *process) {
		p.Maintain(map[gpu.UUID]string{gpuA: "swap the riser"})
		p.Polled(p.node.poll(true, gpuA, gpuB))
		h := p.Health(gpuA)
		assert.Equal(t, Healthy, h.State, "pods with the GPU run on")
		assert.Len(t, h.Blocking, 1)
		p.Conditions(map[gpu.UUID][]string{gpuB: {"GpuXidError"}})
		assert.Equal(t, "the condition GpuXidError of the Node is True: see its message", p.Health(gpuB).Message)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"a maintenance= NoSchedule", "b node-condition=GpuXidError NoSchedule"}, p.published()[1])
		p.Maintain(nil)
		p.Conditions(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Empty(t, p.published()[2])
		assert.Equal(t, []string{"Warning GPUUnhealthy Detect: GPU 1 (" + string(gpuB) + ") gets no new claims (node-condition=GpuXidError): " +
			"the condition GpuXidError of the Node is True: see its message", "Normal GPURecovered Detect: GPU 1 (" + string(gpuB) +
			") no longer has the problem node-condition=GpuXidError, and it gets new claims again"}, p.events.Written())
	})
}

func TestMonitor_XIDs_UnknownReportedHealedEnded(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		n.set(gpuA, func(r *gpu.HealthReading) { r.Action = nil })
		m := n.start(disk.OS{}, finding.Rules{}) // the driver of this process reports no recovery actions
		_ = os.Remove(filepath.Join(n.dir, fileName))
		m.polls(1)
		m.Lead(t.Context())
		defer fakes.Run(t, m.Run)()
		synctest.Wait()
		for range 100 {
			n.report(gpu.HealthEvent{GPU: gpuA, XID: 777})
			synctest.Wait()
		}
		assert.Equal(t, []string{"Warning GPUXIDUnknown Detect: The NVIDIA driver has reported XID 777, which Prism does not know, and which changes nothing; " +
			"the chart value health.xids decides whether it taints the GPU"}, m.events.Written())
		n.report(gpu.HealthEvent{GPU: gpuA, XID: 79})
		synctest.Wait()
		assert.Equal(t, [][]string{{"a xid=79 NoSchedule"}}, m.published())
		require.Error(t, m.Heal(gpuA, time.Now().Add(-time.Minute)))
		require.NoError(t, m.Heal(gpuA, time.Now().Add(time.Second)))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Empty(t, m.published()[1])
		_ = p
	})
}

// TestMonitor_DeviceNodeMissing_OwnEvents: an administrator creates a device node, and resets no GPU.
func TestMonitor_DeviceNodeMissing_OwnEvents(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		n.set(gpuA, func(r *gpu.HealthReading) { r.MissingNode = "/dev/nvidia0" })
		p.polls(1)
		n.set(gpuA, func(r *gpu.HealthReading) { r.MissingNode = "" })
		p.polls(3)
		assert.Equal(t, []string{
			"Warning DeviceNodesMissing Detect: GPU 0 (" + string(gpuA) + ") gets no new claims (gpu-lost=device-node): device node /dev/nvidia0 is missing on " +
				"the host: create it with nvidia-modprobe -u, or restart nvidia-persistenced",
			"Normal DeviceNodesRestored Detect: GPU 0 (" + string(gpuA) + ") no longer has the problem gpu-lost=device-node, and it gets new claims again",
		}, p.events.Written())
	})
}

// TestMonitor_ValueChanges_OnlyTheNewOneReported: the GPU has not recovered.
func TestMonitor_ValueChanges_OnlyTheNewOneReported(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		n.set(gpuA, func(r *gpu.HealthReading) { r.Err = gpu.ErrTimeout })
		p.polls(1)
		n.set(gpuA, lost)
		p.polls(1)
		written := p.events.Written()
		require.Len(t, written, 2)
		assert.Contains(t, written[0], "Warning GPUUnhealthy Detect: GPU 0 ("+string(gpuA)+") gets no new claims (gpu-lost=hung): ")
		assert.Contains(t, written[1], "Warning GPUUnhealthy Detect: GPU 0 ("+string(gpuA)+") gets no new claims (gpu-lost=lost): ")
	})
}

// TestMonitor_Flapping_ReportedOnce: the taint stays.
func TestMonitor_Flapping_ReportedOnce(t *testing.T) {
	t.Parallel()
	bubble(t, finding.Rules{}, func(t *testing.T, n *node, p *process) {
		for range 6 {
			n.set(gpuA, fabric)
			p.polls(1)
			n.set(gpuA, func(r *gpu.HealthReading) { r.Fabric = "" })
			p.polls(4)
		}
		flapping := 0
		for _, note := range p.events.Written() {
			if strings.HasPrefix(note, "Warning GPUFlapping Detect: GPU 0 ") {
				flapping++
			}
		}
		assert.Equal(t, 1, flapping)
		assert.Len(t, p.Health(gpuA).Blocking, 1)
		require.NoError(t, p.Heal(gpuA, time.Now().Add(time.Second)))
		assert.Empty(t, p.Health(gpuA).Blocking)
	})
}

// TestMonitor_FileUnreadable_SetAsideAndReported: polls find the problems again.
func TestMonitor_FileUnreadable_SetAsideAndReported(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"version":2}`, `{"version":1,"state":{"findings":[{"gpu":`, ``, `[]`} {
		n := newNode(t)
		path := filepath.Join(n.dir, fileName)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		synctest.Test(t, func(t *testing.T) {
			n.set(gpuA, lost)
			p := n.start(disk.OS{}, finding.Rules{})
			assert.Empty(t, p.Load())
			assert.FileExists(t, path, "another process may lead, of a later version")
			p.polls(1)
			p.Lead(t.Context())
			kept, err := os.ReadFile(path + ".damaged")
			require.NoError(t, err)
			assert.Equal(t, text, string(kept))
			written := p.events.Written()
			require.Len(t, written, 2)
			assert.Contains(t, written[0], "Warning HealthStateUnreadable Recover: The stored findings of GPUs are lost")
			assert.Contains(t, written[0], "health.json.damaged")
			assert.Equal(t, [][]string{{"a gpu-lost=lost NoSchedule"}}, p.published())
			var c content
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &c))
			assert.Len(t, c.State.Findings, 1)
		})
	}
}

// fullDisk is a disk that refuses writes, and records whether taints were published before a write.
type fullDisk struct {
	disk.OS
	mu     sync.Mutex
	full   bool
	writes int
	before func()
}

func (d *fullDisk) Write(path string, data []byte, perm os.FileMode, durable bool) error {
	d.mu.Lock()
	full := d.full
	d.writes++
	d.mu.Unlock()
	if d.before != nil {
		d.before()
	}
	if full {
		return errors.New("no space left on device")
	}
	return d.OS.Write(path, data, perm, durable)
}

// TestMonitor_FileBeforePublication_UnlessTheDiskIsFull: a process that is killed between both has published nothing that the next one does not
// know.
func TestMonitor_FileBeforePublication_UnlessTheDiskIsFull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		d := &fullDisk{}
		p := n.start(d, finding.Rules{})
		d.before = func() { assert.Empty(t, p.published(), "published before it was stored") }
		p.polls(1)
		p.Lead(t.Context())
		defer fakes.Run(t, p.Run)()
		n.set(gpuA, lost)
		p.polls(1)
		assert.Len(t, p.published(), 1)
		writes := d.writes
		p.polls(3)
		assert.Equal(t, writes, d.writes, "nothing has changed")

		d.before = nil
		d.mu.Lock()
		d.full = true
		d.mu.Unlock()
		n.set(gpuB, fabric)
		p.polls(1)
		assert.Len(t, p.published(), 2, "a sick GPU is tainted all the same")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Less(t, d.writes, writes+20, "once a minute")
		d.mu.Lock()
		d.full = false
		d.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		c, err := p.output.file.load()
		require.NoError(t, err)
		assert.Len(t, c.State.Findings, 2)
	})
}

// brokenDisk is a disk that can be unreadable for a while.
type brokenDisk struct {
	disk.OS
	broken atomic.Bool
}

func (d *brokenDisk) Read(path string) ([]byte, error) {
	if d.broken.Load() {
		return nil, errors.New("input/output error")
	}
	return d.OS.Read(path)
}

// TestMonitor_FileNotReadNow_KeptAndReadLater: it is not damaged, and has findings that no poll shows.
func TestMonitor_FileNotReadNow_KeptAndReadLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		n.set(gpuA, func(r *gpu.HealthReading) { r.Action = nil })
		before := n.start(disk.OS{}, finding.Rules{})
		before.polls(1)
		ctx, end := context.WithCancel(t.Context())
		before.Lead(ctx)
		before.xid(gpu.HealthEvent{GPU: gpuA, XID: 79}, time.Now())
		before.polls(1)
		end()
		path := filepath.Join(n.dir, fileName)
		stored, err := os.ReadFile(path)
		require.NoError(t, err)

		d := &brokenDisk{}
		d.broken.Store(true)
		after := n.start(d, finding.Rules{})
		assert.Empty(t, after.Load())
		n.set(gpuB, lost)
		after.polls(1)
		after.Lead(t.Context())
		defer fakes.Run(t, after.Run)()
		assert.Equal(t, [][]string{{"b gpu-lost=lost NoSchedule"}}, after.published())
		time.Sleep(time.Minute)
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(stored), string(kept), "with the XID error")
		d.broken.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.ElementsMatch(t, []string{"a xid=79 NoSchedule", "b gpu-lost=lost NoSchedule"}, after.published()[1])
		c, err := after.output.file.load()
		require.NoError(t, err)
		assert.Equal(t, before.All()[0].Begin, c.State.Findings[0].Begin)
		assert.Len(t, c.State.Findings, 2)
		assert.NoFileExists(t, path+damagedSuffix)
	})
}

// TestMonitor_NotLeading_WritesNothing: the process that leads does.
func TestMonitor_NotLeading_WritesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		p := n.start(disk.OS{}, finding.Rules{})
		p.Load()
		n.set(gpuA, lost)
		p.polls(2)
		assert.Len(t, p.published(), 1)
		assert.NoFileExists(t, filepath.Join(n.dir, fileName))
		assert.Empty(t, p.events.Written())
		ctx, end := context.WithCancel(t.Context())
		p.Lead(ctx)
		assert.Len(t, p.events.Written(), 1)
		end()
		n.set(gpuB, lost)
		p.polls(1)
		c, err := p.output.file.load()
		require.NoError(t, err)
		assert.Len(t, c.State.Findings, 1)
		assert.Empty(t, p.events.Written())
	})
}

// TestMonitor_NewGPUIsSick_PublishedAtOnce: its devices join the ResourceSlices with the taint.
func TestMonitor_NewGPUIsSick_PublishedAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		p := n.start(disk.OS{}, finding.Rules{})
		n.set(gpuA, fabric)
		n.set(gpuB, fabric)
		p.Polled(n.poll(true, gpuA))
		p.Polled(n.poll(true, gpuA, gpuB))
		assert.Len(t, p.published(), 2)
	})
}

func TestTaintRules_SameBegin_OneRule(t *testing.T) {
	t.Parallel()
	begin := epoch
	rules := taintRules([]finding.Finding{
		{GPU: gpuA, Key: finding.Memory, Value: finding.RowRemapPending, Effect: finding.None, Begin: begin},
		{GPU: gpuA, Key: finding.GPULost, Value: finding.Lost, Effect: finding.NoSchedule, Begin: begin},
		{GPU: gpuB, Key: finding.GPULost, Value: finding.Lost, Effect: finding.NoSchedule, Begin: begin},
	})
	require.Len(t, rules, 2)
	assert.Equal(t, map[gpu.UUID]bool{gpuA: true, gpuB: true}, rules[0].GPUs)
	assert.Equal(t, publish.WithdrawGPUs, rules[0].WithoutTaints)
	assert.Equal(t, begin, rules[0].TimeAdded.Time)
	assert.Equal(t, publish.Ignore, rules[1].WithoutTaints, "a GPU that works is published")
}
