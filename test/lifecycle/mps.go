package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// withMPS gives the machine the MPS service, and advertises each GPU in MPS shares, too.
func (m *Machine) withMPS() {
	m.parts.mps = &mpsService{node: m.Node, waiting: map[chan struct{}]bool{}}
	m.parts.mps.restart()
}

// mpsLayout returns a layout with three MPS shares of each GPU.
func (m *Machine) mpsLayout() gpu.Layout {
	layout := gpu.Layout{}
	for _, id := range m.gpus {
		modes, partitioned := m.parts.layout[id]
		if !partitioned {
			modes = gpu.Modes{Whole: true}
		}
		modes.MPS = &gpu.MPSSharing{ShareName: "gpu-8gb", MPSSize: gpu.MPSSize{Replicas: 3, Memory: gpu.MPSMemory{Default: 8 << 30}}}
		layout[id] = modes
	}
	return layout
}

// modesOfMPS returns the configuration of a GPU that is shared with MPS.
func modesOfMPS(shared *gpu.MPSSharing) string {
	return fmt.Sprintf("mps: {replicas: %d, shareName: %q, memory: {default: %d}}", shared.Replicas, shared.ShareName, shared.Memory.Default)
}

// clientDevices returns the names of the shares of an act.
func (m *Machine) clientDevices(act Act) (devices []string) {
	for _, i := range act.MPS {
		devices = append(devices, m.device(i)+"-mps")
	}
	return devices
}

// withStrategyMPS configures the devices of the claim for several MPS clients.
func withStrategyMPS(rc *resourceapi.ResourceClaim, act Act) *resourceapi.ResourceClaim {
	if !act.StrategyMPS {
		return rc
	}
	config := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim}
	const raw = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"strategy":"MPS"}}`
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}
	rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, config)
	return rc
}

// actMPS runs an act on control daemons, their clients and the service.
func (m *Machine) actMPS(ctx context.Context, p *Process, act Act) error {
	s := m.parts.mps
	switch act.Call {
	case "reconcileMPS":
		return m.reconcileMPS(ctx, p)
	case "inspectMPS":
		m.inspectMPS(ctx, p)
	case "connect":
		return m.connect(act.Claim)
	case "disconnect":
		s.disconnect(act.Claim)
	case "daemonsDie":
		s.die()
	case "serviceVanishes":
		s.vanish()
	case "serviceInterrupted":
		s.interrupt()
	case "serviceResumes":
		s.resume()
	case "driverReplaced":
		s.outdate()
	case "serversHang":
		s.hang()
	case "serversExit":
		s.exit()
	case "limitsTaken":
		s.takeLimits()
	case "driverSingleUser":
		s.change(func() { s.singleUser = true })
	case "modesReset":
		return m.resetModes(ctx)
	default:
		return fmt.Errorf("no such call: %s", act.Call)
	}
	return nil
}

// mpsOf returns the MPS extension of the plugin.
func mpsOf(p *plugin.Plugin) *mps.Extension {
	return extension.All[*mps.Extension](p.Machine.Extensions)[0]
}

// unavailableTime is how long the service must not answer before the plugin considers it unavailable.
const unavailableTime = 20 * time.Second

// reconcileMPS runs the leader's background work: it asks the service, and reconciles once.
func (m *Machine) reconcileMPS(ctx context.Context, p *Process) error {
	watching, stop := context.WithTimeout(ctx, unavailableTime)
	watched := make(chan error, 1)
	go func() {
		defer close(watched) // a killed process sends nothing
		watched <- mpsOf(p.Plugin).Run(watching)
	}()
	synctest.Wait()
	m.parts.mps.mu.Lock()
	down := m.parts.mps.down
	m.parts.mps.mu.Unlock()
	if down {
		<-watching.Done()
	}
	m.parts.mps.reconciles()
	defer m.parts.mps.reconciled()
	mpsOf(p.Plugin).Reconcile(ctx, true)
	stop()
	err := <-watched
	return err
}

// inspectMPS does the work that the leader does at once when the process of a daemon is gone: the service does not count as unavailable
// yet.
func (m *Machine) inspectMPS(ctx context.Context, p *Process) {
	m.parts.mps.reconciles()
	defer m.parts.mps.reconciled()
	mpsOf(p.Plugin).Reconcile(ctx, false)
}

// connect starts a program in a container of a prepared claim, which connects to the daemon or cannot use the device.
func (m *Machine) connect(uid string) error {
	records, err := m.Records()
	if err != nil {
		return err
	}
	if r := records[uid]; r == nil || r.State != checkpoint.Done || r.BootID != m.BootID() {
		return nil // its pod runs no containers
	}
	devices, err := sharedBy(records[uid])
	for id, d := range devices {
		if err := m.parts.mps.connect(id, m.sharedDevice(records[uid], d), uid); err != nil && !errors.Is(err, errProhibited) {
			return err
		}
	}
	return err
}

// resetModes resets the compute modes, as a driver without persistence mode does.
func (m *Machine) resetModes(ctx context.Context) error {
	for _, id := range m.gpus {
		if err := m.setMode(ctx, id, model.ComputeDefault); err != nil {
			return err
		}
	}
	m.parts.mps.change(func() { m.parts.mps.disturbed = true })
	return nil
}

func (m *Machine) setMode(ctx context.Context, id gpu.UUID, mode model.ComputeMode) error {
	session, handle, _, err := modelled{m.Node}.open(ctx, id)
	if err != nil {
		return err
	}
	return translated(session.SetComputeMode(handle, mode, true))
}

// sharedBy returns the steps of a record's results by control daemon.
func sharedBy(r *checkpoint.Record) (map[gpu.MPSDaemonID]*checkpoint.Step, error) {
	steps := map[gpu.MPSDaemonID]*checkpoint.Step{}
	if r == nil {
		return steps, nil
	}
	for i := range r.Steps {
		if r.Steps[i].Kind != claim.StepMPS {
			continue
		}
		wanted, err := claim.ParseMPS(r.Steps[i].Args)
		if err != nil {
			return nil, err
		}
		steps[wanted.Daemon] = &r.Steps[i]
	}
	return steps, nil
}

// sharedDevice returns the UUID of the device of a step.
func (m *Machine) sharedDevice(r *checkpoint.Record, s *checkpoint.Step) string {
	if i := r.ResultOf(s); i >= 0 && r.Results[i].MIG != nil {
		return string(r.Results[i].MIG.Identity.UUID)
	}
	return string(s.Target)
}

// mpsEdits returns the edits in the spec for the record's shares.
func (m *Machine) mpsEdits(r *checkpoint.Record) (all []cdi.DeviceEdits, err error) {
	cfg := m.settings()
	step := mps.Step{Dir: filepath.Join(cfg.RunDir(), "mps"), Socket: cfg.HookSocket(), Hook: func(args ...string) *specs.Hook {
		return cdi.CreateRuntimeHook(filepath.Join(cfg.ProgramsDir(), writer, cdi.OwnHookName), args...)
	}}
	for i := range r.Steps {
		if r.Steps[i].Kind != claim.StepMPS {
			continue
		}
		for _, at := range r.ResultsOf(&r.Steps[i]) {
			of := r.Steps[i]
			of.CDIDevice, of.ClaimUID = r.CDI.Devices[at], r.Claim.UID
			edits, err := step.Edits(of)
			if err != nil {
				return nil, err
			}
			all = append(all, cdi.DeviceEdits{Device: of.CDIDevice, Source: "step " + of.Kind, Edits: edits})
		}
	}
	return all, nil
}

// daemonsAreRecorded checks that a daemon runs only if a record of this boot names it, that each prepared claim has its daemon and an
// exclusive device, and that a device without a record is in its own mode. A daemon that exited and was not reconciled yet does not count.
func (m *Machine) daemonsAreRecorded(records map[string]*checkpoint.Record) error {
	s := m.parts.mps
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	recorded, targets, err := m.preparedAreServed(records)
	if err := errors.Join(append(s.wrong, err)...); err != nil {
		return err
	}
	if m.anyDamaged() || m.lost != "" {
		return nil
	}
	for id, d := range s.daemons {
		if !recorded[id] {
			return fmt.Errorf("MPS control daemon %s of GPU %s is %s, and no record has it", id, d.Spec.GPU, d.State)
		}
	}
	for id := range s.kept {
		if !recorded[id] {
			return fmt.Errorf("the directory of MPS control daemon %s has files of its clients, and no record has it", id)
		}
	}
	for _, g := range m.Node.GPUs() {
		if !targets[gpu.UUID(g.UUID)] && g.ComputeMode != model.ComputeDefault {
			return fmt.Errorf("the compute mode of GPU %s is %d without a recorded share of it", g.UUID, g.ComputeMode)
		}
	}
	return m.modesAreRecorded(recorded)
}

// preparedAreServed checks that each prepared claim has its daemon. It returns the daemons and the GPUs in records. mu is held.
func (m *Machine) preparedAreServed(records map[string]*checkpoint.Record) (map[gpu.MPSDaemonID]bool, map[gpu.UUID]bool, error) {
	s, recorded, targets := m.parts.mps, map[gpu.MPSDaemonID]bool{}, map[gpu.UUID]bool{}
	for uid, r := range records {
		if r.BootID != m.BootID() {
			continue
		}
		steps, err := sharedBy(r)
		if err != nil {
			return nil, nil, err
		}
		for id, step := range steps {
			recorded[id], targets[step.Target] = true, true
			if r.State != checkpoint.Done || s.disturbed {
				continue
			}
			if err := errors.Join(s.serves(id, m.sharedDevice(r, step)), s.limits(id)); err != nil {
				return nil, nil, fmt.Errorf("claim %s is prepared: %w", uid, err)
			}
		}
	}
	return recorded, targets, nil
}

// serves checks that a daemon runs and that the device is for this daemon alone; without a daemon, that the device is for no process.
func (s *mpsService) serves(id gpu.MPSDaemonID, device string) error {
	d := s.daemons[id]
	runs := d != nil && d.State == gpu.MPSRunning
	mode, has := s.mode(device)
	switch {
	case runs && d.Spec.Device != device:
		return fmt.Errorf("MPS control daemon %s is of %s, and not of %s", id, d.Spec.Device, device)
	case runs && has && mode != model.ComputeExclusiveProcess && !s.down:
		return fmt.Errorf("MPS control daemon %s runs, and the compute mode of %s is %d", id, device, mode)
	case !runs && has && mode != model.ComputeProhibited:
		return fmt.Errorf("MPS control daemon %s does not run, and the compute mode of %s is %d", id, device, mode)
	case !runs && !has && !s.down:
		return fmt.Errorf("MPS control daemon %s does not run", id)
	}
	return nil
}

// limits checks that the limits of a daemon are the same as at its start.
func (s *mpsService) limits(id gpu.MPSDaemonID) error {
	if d := s.daemons[id]; d != nil && d.limits.MemoryMiB != d.Spec.MemoryMiB {
		return fmt.Errorf("limit of MPS control daemon %s: %d MiB, want %d", id, d.limits.MemoryMiB, d.Spec.MemoryMiB)
	}
	return nil
}

// modesAreRecorded checks that the saved modes of this boot belong to a record. The next share overwrites saved modes of an earlier boot.
func (m *Machine) modesAreRecorded(recorded map[gpu.MPSDaemonID]bool) error {
	files, err := os.ReadDir(filepath.Join(m.StateDir, "mps"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, file := range files {
		id, _, _ := strings.Cut(file.Name(), ".")
		data, err := os.ReadFile(filepath.Join(m.StateDir, "mps", file.Name()))
		if err == nil && !recorded[gpu.MPSDaemonID(id)] && strings.Contains(string(data), fmt.Sprintf("%q", m.BootID())) {
			return fmt.Errorf("%s is in the directory of saved modes without a recorded share of its device", file.Name())
		}
	}
	return nil
}

// sharingIsReset checks that nothing is left of MPS.
func (m *Machine) sharingIsReset() error {
	s := m.parts.mps
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.daemons {
		return fmt.Errorf("MPS control daemon %s of GPU %s is left", id, d.Spec.GPU)
	}
	for id := range s.kept {
		return fmt.Errorf("the directory of MPS control daemon %s is left", id)
	}
	return m.modesAreRecorded(nil)
}
