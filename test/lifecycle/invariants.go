package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/mig"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// plantedDamage is the content of records that a test has damaged. Any other damage is a violation.
const plantedDamage = "{}"

// damaged reports whether a test has damaged the claim's record.
func (m *Machine) damaged(uid string) bool {
	for _, suffix := range []string{"", ".damaged"} {
		data, err := os.ReadFile(filepath.Join(m.StateDir, "claims", uid+".json"+suffix))
		if err == nil && string(data) == plantedDamage {
			return true
		}
	}
	return false
}

// anyDamaged reports whether a test has damaged any record: the effects of its claim are not recorded until garbage is collected.
func (m *Machine) anyDamaged() bool {
	files, _ := os.ReadDir(filepath.Join(m.StateDir, "claims"))
	return slices.ContainsFunc(files, func(file os.DirEntry) bool {
		uid, _, _ := strings.Cut(file.Name(), ".")
		return m.damaged(uid)
	})
}

// Records reads all records from disk, by claim UID.
func (m *Machine) Records() (map[string]*checkpoint.Record, error) {
	dir := filepath.Join(m.StateDir, "claims")
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	records := map[string]*checkpoint.Record{}
	for _, file := range files {
		uid, isRecord := strings.CutSuffix(file.Name(), ".json")
		if !isRecord {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // a running process has removed it
		}
		if err != nil {
			return nil, err
		}
		if string(data) == plantedDamage {
			continue
		}
		if records[uid], err = checkpoint.Decode(data); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return records, nil
}

// specs reads all files of the CDI directory, by claim UID.
func (m *Machine) specs() (map[string]string, error) {
	files, err := os.ReadDir(m.CDIDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	specs := map[string]string{}
	for _, file := range files {
		name, ours := strings.CutPrefix(file.Name(), "k8s."+DriverName+"-claim_")
		uid, whole := strings.CutSuffix(name, ".json")
		if !ours || !whole {
			continue
		}
		data, err := os.ReadFile(filepath.Join(m.CDIDir, file.Name()))
		if err != nil {
			return nil, err
		}
		specs[uid] = string(data)
	}
	return specs, nil
}

// CheckInvariants checks the invariants that hold whenever no call is running. The named claims are prepared. The driver must be loaded.
func (m *Machine) CheckInvariants(ctx context.Context, answered ...string) error {
	records, err := m.Records()
	if err != nil {
		return err
	}
	specs, err := m.specs()
	if err != nil {
		return err
	}
	for uid := range specs {
		if records[uid] == nil && uid != m.lost && !m.damaged(uid) {
			return fmt.Errorf("claim %s: spec without a record", uid)
		}
	}
	if err := m.preparedClaimsHold(ctx, records, specs, answered); err != nil {
		return err
	}
	return errors.Join(
		ownedOnce(records), m.directoriesAreRecorded(records), m.reportsAreWhole(), m.effectsAreRecorded(records), m.instancesAreRecorded(records),
		m.intervalsAreRecorded(records), m.daemonsAreRecorded(records),
	)
}

// preparedClaimsHold checks that prepared claims have a record and a spec, and that the devices of claims are advertised. If there are
// neither, it does not open the driver.
func (m *Machine) preparedClaimsHold(ctx context.Context, records map[string]*checkpoint.Record, specs map[string]string, answered []string) error {
	if len(answered) == 0 && !m.layoutChanges {
		return nil
	}
	inv, leave := m.inspect(m.open, func() (inventory.Owned, error) {
		return mig.Owned(slices.Collect(maps.Values(records)), m.BootID(), m.host.DriverLoad()), nil
	})
	defer func() { _ = leave() }()
	if err := inv.Refresh(ctx); err != nil {
		return err
	}
	for _, uid := range answered {
		if err := m.checkPrepared(inv, records[uid], specs[uid]); err != nil {
			return fmt.Errorf("claim %s: %w", uid, err)
		}
	}
	if m.layoutChanges {
		return m.layoutIsKept(inv, records)
	}
	return nil
}

// ownedOnce checks that no device has two owners, and that no part of a GPU is used in two ways.
func ownedOnce(records map[string]*checkpoint.Record) error {
	owners := map[gpu.UUID]map[string][]checkpoint.Result{}
	for uid, r := range records {
		for _, result := range r.Results {
			id := result.GPUUUID
			if result.Admin {
				continue
			}
			for other, owned := range owners[id] {
				if other != uid && slices.ContainsFunc(owned, func(o checkpoint.Result) bool { return collide(&o, &result) }) {
					return fmt.Errorf("%s of GPU %s is owned by claims %s and %s", result.Device, id, uid, other)
				}
			}
			if owners[id] == nil {
				owners[id] = map[string][]checkpoint.Result{}
			}
			owners[id][uid] = append(owners[id][uid], result)
		}
	}
	return nil
}

// collide reports whether one GPU cannot hold both results: only MIG devices that do not overlap, shares of one device, and the GPU's counters
// beside anything else can be owned at once.
func collide(a, b *checkpoint.Result) bool {
	if a.Type == gpu.TypePerfmon || b.Type == gpu.TypePerfmon {
		return a.Type == b.Type
	}
	if a.Device == b.Device && a.Share != nil && b.Share != nil {
		return a.ShareID == b.ShareID
	}
	return a.MIG == nil || b.MIG == nil || a.MIG.Placement.Overlaps(b.MIG.Placement)
}

// checkPrepared checks the record of a prepared claim, and that its spec equals a newly built one.
func (m *Machine) checkPrepared(inv *inventory.Inventory, r *checkpoint.Record, spec string) error {
	if r == nil {
		return errors.New("it was prepared and lacks a record")
	}
	if r.State != checkpoint.Done || r.BootID != m.BootID() {
		return fmt.Errorf("it was prepared, and its record is %s of %s", r.State, r.BootID)
	}
	builder := plugin.SpecBuilder(pluginHost{m.host, port.MinimalHost{}, m.parts.mps, m.profilerFiles()}, inv, nil)
	builder.Types = m.nodeTypes()
	edits, err := m.mpsEdits(r)
	for _, more := range []func(*checkpoint.Record) ([]cdi.DeviceEdits, error){m.profileEdits, m.metrics().EditsOf} {
		if err == nil {
			var added []cdi.DeviceEdits
			added, err = more(r)
			edits = append(edits, added...)
		}
	}
	if err != nil {
		return err
	}
	now, err := builder.Build(cdi.SpecRequest{Record: r, Edits: edits, Marks: mpsMarks(r), Made: m.metrics().Makes})
	if err != nil {
		return err
	}
	want, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if spec != string(want) {
		return fmt.Errorf("its spec is %.40q... of %d bytes, want %.40q... of %d bytes", spec, len(spec), want, len(want))
	}
	return errors.Join(m.exposesMetrics(r), m.hasPlan(r), m.hasOrder(r))
}

// mpsMarks returns the marks of devices that are used with MPS.
func mpsMarks(r *checkpoint.Record) map[string]string {
	marks := map[string]string{}
	for i := range r.Results {
		if result := &r.Results[i]; result.Extensions.Has(claim.KindMPS) && result.Type != gpu.TypeMPS {
			marks[r.CDI.Devices[i]] = "+mps"
		}
	}
	return marks
}

// effectsAreRecorded checks that each effect on the hardware is in a record, and that the effects of prepared claims exist.
func (m *Machine) effectsAreRecorded(records map[string]*checkpoint.Record) error {
	allowed, promised := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		if r.BootID != m.BootID() {
			continue
		}
		for _, s := range r.Steps {
			key := s.Kind + " on " + string(s.Target)
			allowed[key] = true
			if r.State == checkpoint.Done {
				promised[key] = true
			}
		}
	}
	gpus := m.Node.GPUs()
	for i := range gpus {
		for kind, has := range m.effects() {
			present := has(&gpus[i])
			key := kind + " on " + gpus[i].UUID
			switch {
			case present && !allowed[key] && !m.anyDamaged():
				return fmt.Errorf("%s exists, and no record has it", key)
			case !present && promised[key]:
				return fmt.Errorf("%s does not exist, and a prepared claim has it", key)
			}
		}
	}
	return nil
}

// CheckEmpty checks that nothing is left of any claim, including temporary files.
func (m *Machine) CheckEmpty(ctx context.Context) error {
	if err := m.CheckInvariants(ctx); err != nil {
		return err
	}
	gpus := m.Node.GPUs()
	for i := range gpus {
		for kind, has := range m.effects() {
			if has(&gpus[i]) {
				return fmt.Errorf("%s is left on GPU %s", kind, gpus[i].UUID)
			}
		}
	}
	for at, d := range m.instances() {
		if _, static := m.parts.static[at]; !static {
			return fmt.Errorf("GPU instance %d (%s) is left at %v of GPU %s", d.GPUInstance, d.Profile, at.at, at.gpu)
		}
	}
	if err := errors.Join(m.intervalsAreReset(), m.sharingIsReset(), m.layoutIsComplete(ctx)); err != nil {
		return err
	}
	for _, dir := range []string{m.CDIDir, filepath.Join(m.StateDir, "claims")} {
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, file := range files {
			if uid, aside := strings.CutSuffix(file.Name(), ".json.damaged"); aside && m.damaged(uid) {
				continue
			}
			return fmt.Errorf("%s is left in %s", file.Name(), dir)
		}
	}
	return nil
}
