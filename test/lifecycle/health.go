package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	commands "github.com/prism-gpu/prism/pkg/plugin/maintenance"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// healthFiles are the files with the findings and with the release in force.
var healthFiles = []string{healthFile, maintenance.ReleasedFile}

const (
	healthFile = "health.json"
	// damagedSuffix ends the name of a file that was set aside.
	damagedSuffix = ".damaged"
	// taintingXID is an XID error that taints, as the settings say.
	taintingXID = 45
	// flushTime is longer than the time between two publications, and than the polls after an event take.
	flushTime = 6 * time.Second
	// bootTime is the time until a machine is up again.
	bootTime = time.Minute
	// resetTest is a GPU that is reset to find out whether a session is open. It has no problems.
	resetTest = 4
)

// gpuHealth is the health of a machine's GPUs. Nil is a machine on which it does not change.
type gpuHealth struct {
	// elapsed is the time since fakeStart when the last process exited: time continues in the next one.
	elapsed time.Duration
	// sick are the ordinals of GPUs with a problem that polls show; known: the process has polled since.
	sick map[int]bool
	// lost are the ordinals of lost GPUs.
	lost map[int]bool
	// disturbed: the disk, the driver or the API server of the process fails, or that of the process before did.
	disturbed bool
	// planted: a test has damaged the file.
	planted bool
	// unsure: the file that was set aside may be lost, by a power cut or because the disk fails.
	unsure bool
	// stored are the findings that the process has found on disk.
	stored []finding.SavedFinding
	// began: the process has published.
	began bool
}

func newGPUHealth(changes bool) *gpuHealth {
	if !changes {
		return nil
	}
	return &gpuHealth{elapsed: time.Second / 2, sick: map[int]bool{}, lost: map[int]bool{}} // no timer of the product ends at the same time as one of the test
}

// resume continues the time of the process before.
func (h *gpuHealth) resume(node *model.Node) {
	if h == nil {
		return
	}
	time.Sleep(h.elapsed)
	for i := range h.lost {
		_, _ = node.LoseGPU(i, time.Time{}) // it was possible before
	}
}

// pause notes the time, and ends the faults of the node, which belong to a bubble of fake time.
func (h *gpuHealth) pause(node *model.Node) {
	if h != nil {
		h.elapsed = time.Since(fakeStart).Truncate(time.Second) + 3*time.Second/2
		node.Faults.Clear()
	}
}

// disturb notes that fault points of the next process fail.
func (h *gpuHealth) disturb() {
	if h != nil {
		h.disturbed, h.unsure = true, true
	}
}

// bootHealth boots a machine whose GPUs had the other one's problems: the boot repairs them.
func (m *Machine) bootHealth(other *Machine) {
	m.health = newGPUHealth(other.health != nil)
	if m.health != nil {
		m.Node.Heal()
		m.health.elapsed, m.health.planted = other.health.elapsed+bootTime, other.health.planted
		m.health.unsure = true
	}
}

// begin notes the knowledge of a process that starts.
func (h *gpuHealth) begin(m *Machine) (err error) {
	if h == nil {
		return nil
	}
	h.began = false
	for i := range h.sick {
		h.sick[i] = true // the first poll ends before the first publication
	}
	h.stored, err = m.storedFindings()
	return err
}

// storedFindings returns the findings on disk that are still valid.
func (m *Machine) storedFindings() ([]finding.SavedFinding, error) {
	raw, err := os.ReadFile(filepath.Join(m.StateDir, healthFile))
	if errors.Is(err, fs.ErrNotExist) || string(raw) == plantedHealth {
		return nil, nil
	}
	var c struct {
		BootID, DriverLoad string
		State              finding.Saved
	}
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if load := m.host.DriverLoad(); c.BootID != m.BootID() || c.DriverLoad != "" && load != "" && c.DriverLoad != load {
		c.State = c.State.Declared()
	}
	return c.State.Findings, err
}

// plantedHealth is the content of a damaged file.
const plantedHealth = `{"version":1,"state":`

// leadHealth makes the process store findings and decide about releases until the context ends.
func (p *Process) leadHealth(ctx context.Context) {
	p.Machine.Health.Lead(ctx)
	go p.Maintenance().Lead(ctx)
	synctest.Wait()
}

// actOther runs an act about the health of GPUs or about MPS.
func (m *Machine) actOther(ctx context.Context, p *Process, act Act) error {
	switch act.Call {
	case "lose", "remap", "act", "xid", "repair", "maintain", "release", "reset", "heal", "undrain", "poll", "follow":
		return m.health.do(ctx, m, p, act)
	default:
		return m.actMPS(ctx, p, act)
	}
}

// do runs an act about the health of GPUs.
func (h *gpuHealth) do(ctx context.Context, m *Machine, p *Process, act Act) error {
	for _, i := range act.GPUs {
		if err := h.change(m, i, act); err != nil {
			return err
		}
	}
	switch act.Call {
	case "repair":
		m.Node.Heal()
		clear(h.sick)
		clear(h.lost)
		return nil
	case "poll":
		return h.poll(ctx, m, p)
	case "xid":
		return p.watch(ctx, func() error { return m.Node.PostXID(act.GPUs[0], act.Value) })
	case "maintain", "release", "heal", "undrain":
		if err := m.updateCluster(func(c *cluster) { c.annotate(m, act) }); err != nil {
			return err
		}
		return h.follow(ctx, m, p, 0)
	case "follow":
		return h.follow(ctx, m, p, act.For)
	}
	return nil
}

// change changes the state of a GPU.
func (h *gpuHealth) change(m *Machine, i int, act Act) (err error) {
	switch act.Call {
	case "lose":
		_, err = m.Node.LoseGPU(i, time.Time{})
		h.lost[i] = true
	case "remap":
		err = m.Node.ChangeHealth(i, func(now *model.Health) { now.RowRemapFailure = true })
	case "act":
		err = m.Node.ChangeHealth(i, func(now *model.Health) { now.Action = model.RecoveryAction(act.Value) })
	case "reset":
		delete(h.sick, i)
		return m.Node.ResetDetachedGPU(i)
	default:
		return nil
	}
	if _, sick := h.sick[i]; !sick && err == nil {
		h.sick[i] = false
	}
	return err
}

// annotate changes the annotations of the Node.
func (c *cluster) annotate(m *Machine, act Act) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, i := range act.GPUs {
		key := func(v maintenance.Verb) string { return maintenance.Key(v, DriverName, m.device(i)) }
		switch act.Call {
		case "maintain":
			c.Annotations[key(maintenance.Maintain)] = "swap the riser"
		case "release":
			c.Annotations[key(maintenance.Release)] = time.Now().Add(act.For).UTC().Format(time.RFC3339)
		case "heal":
			c.Annotations[key(maintenance.Heal)] = time.Now().Add(time.Second).UTC().Format(time.RFC3339)
		case "undrain":
			delete(c.Annotations, key(maintenance.Maintain))
			delete(c.Annotations, key(maintenance.Release))
		}
	}
}

// poll inspects the GPUs, and publishes the result.
func (h *gpuHealth) poll(ctx context.Context, m *Machine, p *Process) error {
	if err := p.Machine.Inventory.Refresh(ctx); err != nil {
		return err
	}
	if err := p.watch(ctx, nil); err != nil {
		return err
	}
	for i := range h.sick {
		h.sick[i] = true
	}
	if err := p.layout.wait(ctx, changeSeconds); err != nil {
		return err
	}
	return h.tainted(m)
}

// watch watches the driver, has something happen meanwhile, and publishes what was deferred.
func (p *Process) watch(ctx context.Context, event func() error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { err = p.Machine.Health.Run(ctx) })
	synctest.Wait()
	var happened error
	if event != nil {
		happened = event()
	}
	time.Sleep(flushTime)
	stop()
	running.Wait()
	return errors.Join(err, happened)
}

// follow follows the annotations of the Node for that time, and publishes the result.
func (h *gpuHealth) follow(ctx context.Context, m *Machine, p *Process, during time.Duration) error {
	c, err := m.cluster()
	if err != nil {
		return err
	}
	p.Maintenance().Node(commands.Node{Annotations: c.Annotations})
	following, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { err = p.Maintenance().Run(following) })
	time.Sleep(during)
	synctest.Wait()
	stop()
	running.Wait()
	if err = errors.Join(err, p.watch(ctx, nil)); err != nil {
		return err
	}
	return p.layout.wait(ctx, changeSeconds)
}

// tainted checks that the last publication is right.
func (h *gpuHealth) tainted(m *Machine) error {
	c, err := m.cluster()
	if err != nil || c.Broken != "" {
		return errors.Join(err, errors.New(c.Broken))
	}
	return h.sickAreTainted(m, c)
}

// isOf reports whether the device at a place is one of a GPU.
func (m *Machine) isOf(at string, ordinal int) bool {
	_, device, _ := strings.Cut(at, " ")
	return device == m.device(ordinal) || strings.HasPrefix(device, m.device(ordinal)+"-")
}

// sickAreTainted checks that no device of a sick GPU can be allocated.
func (h *gpuHealth) sickAreTainted(m *Machine, c *cluster) error {
	for i, known := range h.sick {
		devices := 0
		for at, d := range c.Published {
			if !known || !m.isOf(at, i) {
				continue
			}
			devices++
			if !d.blocked() {
				return fmt.Errorf("%s of a sick GPU is published with the taints %v", at, d.Taints)
			}
		}
		if known && devices == 0 && !h.disturbed && !h.planted {
			return fmt.Errorf("no device of the sick GPU %s is published", m.device(i))
		}
	}
	return nil
}

func (p *publication) blocked() bool {
	for taint := range p.Taints {
		if strings.HasSuffix(taint, ":NoSchedule") {
			return true
		}
	}
	return false
}
