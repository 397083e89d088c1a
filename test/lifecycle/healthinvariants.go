package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	commands "github.com/prism-gpu/prism/pkg/plugin/maintenance"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// published checks a publication, which has replaced the one before.
func (h *gpuHealth) published(m *Machine, c *cluster, before map[string]*publication) {
	if h == nil || c.Broken != "" {
		return
	}
	err := h.sickAreTainted(m, c)
	if !h.began && !h.disturbed {
		err = errors.Join(err, h.storedAreTainted(m, c), h.nothingElseTainted(m, c))
	}
	if !h.disturbed {
		err = errors.Join(err, h.sinceTheBegin(c, before, c.Boot == m.BootID()))
	}
	if c.Boot == m.BootID() && !h.disturbed && !h.planted { // a damaged file has no facts of lost GPUs
		err = errors.Join(err, m.nothingVanishes(c, before))
	}
	h.began, c.Boot = true, m.BootID()
	if err != nil {
		c.Broken = err.Error()
	}
}

// taintOf is the taint of a finding.
func taintOf(f *finding.SavedFinding) string {
	return fmt.Sprintf("%s/%s=%s:%s", DriverName, f.Key, f.Value, finding.NoSchedule)
}

// storedAreTainted checks that the first publication of a process has the findings that were stored before, with their begin.
func (h *gpuHealth) storedAreTainted(m *Machine, c *cluster) error {
	for n := range h.stored {
		f := &h.stored[n]
		for at, d := range c.Published {
			i := m.ordinalOf(at)
			if i < 0 || m.gpus[i] != f.GPU || !f.Blocks || f.Key == finding.Maintenance && !c.annotated(m, maintenance.Maintain, i) {
				continue
			}
			if since, has := d.Taints[taintOf(f)]; !has || !since.Equal(f.Begin) {
				return fmt.Errorf("%s is published with the taints %v, and %s was stored, since %v", at, d.Taints, taintOf(f), f.Begin)
			}
		}
	}
	return nil
}

// nothingElseTainted checks that the first publication of a process has no taint that nothing explains.
func (h *gpuHealth) nothingElseTainted(m *Machine, c *cluster) error {
	for at, d := range c.Published {
		i := m.ordinalOf(at)
		if i < 0 {
			continue
		}
		_, sick := h.sick[i]
		left := maps.Clone(d.Taints)
		for n := range h.stored {
			if h.stored[n].GPU == m.gpus[i] {
				delete(left, taintOf(&h.stored[n]))
			}
		}
		if len(left) > 0 && !sick {
			return fmt.Errorf("%s is published with the taints %v, which were not stored, and the GPU is not sick", at, left)
		}
	}
	return nil
}

// annotated reports whether the Node has an annotation about a GPU.
func (c *cluster) annotated(m *Machine, verb maintenance.Verb, ordinal int) bool {
	_, has := c.Annotations[maintenance.Key(verb, DriverName, m.device(ordinal))]
	return has
}

// ordinalOf returns the ordinal of the GPU of the device at a place; negative for other devices.
func (m *Machine) ordinalOf(at string) int {
	for i := range m.gpus {
		if m.isOf(at, i) {
			return i
		}
	}
	return -1
}

// sinceTheBegin checks that a taint that stays keeps its time. Only declared findings outlive a boot.
func (h *gpuHealth) sinceTheBegin(c *cluster, before map[string]*publication, sameBoot bool) error {
	for at, was := range before {
		is := c.Published[at]
		if is == nil {
			continue
		}
		for taint, since := range was.Taints {
			now, has := is.Taints[taint]
			declared := strings.HasPrefix(taint, DriverName+"/"+string(finding.Maintenance)+"=")
			if has && !now.Equal(since) && (sameBoot || declared) {
				return fmt.Errorf("%s has the taint %s since %v, before since %v", at, taint, now, since)
			}
		}
	}
	return nil
}

// nothingVanishes checks that the devices of GPUs whose layout does not change stay as they are.
func (m *Machine) nothingVanishes(c *cluster, before map[string]*publication) error {
	for at, was := range before {
		if m.ordinalOf(at) == layoutGPU {
			continue
		}
		if is := c.Published[at]; is == nil || is.Is != was.Is {
			return fmt.Errorf("%s vanished, or has other attributes", at)
		}
	}
	return nil
}

// layoutGPU is the GPU of layoutConfig.
const layoutGPU = 3

// recover checks the state that a process left, ends all problems, and checks that nothing is left of them. Wanted: a release ends at its
// time, not before.
func (h *gpuHealth) recover(ctx context.Context, m *Machine, p *Process, wanted bool) error {
	if h == nil {
		return nil
	}
	h.disturbed = false
	steps := []func() error{
		func() error { return errors.Join(h.tainted(m), m.sessionFollowsFile()) },
		func() error { return h.follow(ctx, m, p, 0) },
		func() error { return errors.Join(m.commandsHold(p), m.sessionFollowsFile()) },
		func() error { return h.endMaintenance(ctx, m, p, wanted) },
		func() error { return h.poll(ctx, m, p) },
		func() error { return h.repairAll(ctx, m, p) },
		func() error { return m.isHealthy(p) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("health: %w", err)
		}
	}
	return nil
}

// released returns until when the file says that sessions are closed.
func (m *Machine) released() (time.Time, error) {
	return commands.File{Disk: disk.OS{}, Dir: m.StateDir}.Until(time.Now())
}

// sessionFollowsFile checks that the sessions are closed during a release, and open otherwise.
func (m *Machine) sessionFollowsFile() error {
	until, err := m.released()
	if err != nil {
		return err
	}
	open := errors.Is(m.Node.ResetDetachedGPU(resetTest), model.InUse)
	if open == until.IsZero() {
		return nil
	}
	return fmt.Errorf("GPUs are released until %v, and a session is open: %t", until, open)
}

// commandsHold checks that GPUs under maintenance are tainted, and that the findings of healed GPUs have not come back.
func (m *Machine) commandsHold(p *Process) error {
	if p.Machine.Inventory.Status().Checked.IsZero() {
		return nil // a process that started during a release publishes nothing before its end
	}
	c, err := m.cluster()
	if err != nil {
		return err
	}
	for at, d := range c.Published {
		i := m.ordinalOf(at)
		if i < 0 {
			continue
		}
		maintained := taintOf(&finding.SavedFinding{Key: finding.Maintenance})
		if _, tainted := d.Taints[maintained]; tainted != c.annotated(m, maintenance.Maintain, i) {
			return fmt.Errorf("%s is published with the taints %v, under maintenance: %t", at, d.Taints, !tainted)
		}
		for taint := range d.Taints {
			if c.annotated(m, maintenance.Heal, i) && strings.HasPrefix(taint, DriverName+"/"+string(finding.XID)+"=") {
				return fmt.Errorf("%s is published with the taint %s, which was healed", at, taint)
			}
		}
	}
	return nil
}

// endMaintenance ends releases and maintenance.
func (h *gpuHealth) endMaintenance(ctx context.Context, m *Machine, p *Process, wanted bool) error {
	until, err := m.released()
	if err != nil {
		return err
	}
	if wanted && !until.IsZero() {
		if err := errors.Join(h.follow(ctx, m, p, time.Until(until)+time.Second), m.isReopened()); err != nil {
			return err
		}
	}
	if err := m.updateCluster(func(c *cluster) { c.Annotations = nil }); err != nil {
		return err
	}
	return errors.Join(h.follow(ctx, m, p, 0), m.isReopened(), m.commandsHold(p))
}

// isReopened checks that nothing is left of a release.
func (m *Machine) isReopened() error {
	if _, err := os.Stat(filepath.Join(m.StateDir, maintenance.ReleasedFile)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is left: %w", maintenance.ReleasedFile, err)
	}
	return m.sessionFollowsFile()
}

// repairAll ends all problems.
func (h *gpuHealth) repairAll(ctx context.Context, m *Machine, p *Process) error {
	heals := Act{Call: "heal"}
	for _, f := range p.Machine.Health.All() {
		for i := range m.gpus {
			if m.gpus[i] == f.GPU && f.Key == finding.XID {
				heals.GPUs = append(heals.GPUs, i)
			}
		}
	}
	acts := []Act{{Call: "repair"}, heals, {Call: "poll"}, {Call: "poll"}, {Call: "poll"}}
	for _, act := range acts {
		if err := h.do(ctx, m, p, act); err != nil {
			return err
		}
	}
	return nil
}

// isHealthy checks that nothing is left of problems.
func (m *Machine) isHealthy(p *Process) error {
	if all := p.Machine.Health.All(); len(all) > 0 {
		return fmt.Errorf("%v are left", all)
	}
	stored, err := m.storedFindings()
	if err != nil || len(stored) > 0 {
		return errors.Join(err, fmt.Errorf("%v are stored", stored))
	}
	c, err := m.cluster()
	if err != nil {
		return err
	}
	for at, d := range c.Published {
		if len(d.Taints) > 0 {
			return fmt.Errorf("%s is published with the taints %v", at, d.Taints)
		}
	}
	aside, err := os.ReadFile(filepath.Join(m.StateDir, healthFile+damagedSuffix))
	switch {
	case m.health.planted && string(aside) != plantedHealth && (err == nil || !m.health.unsure):
		return fmt.Errorf("the damaged file was not set aside: %w", err)
	case !m.health.planted && err == nil:
		return fmt.Errorf("%s was set aside, and was not damaged: %s", healthFile, aside)
	}
	return nil
}
