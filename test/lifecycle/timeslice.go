package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/nvsmi"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// intervalNames lists the intervals by their value in hardware.
var intervalNames = []gpu.Interval{gpu.IntervalDefault, gpu.IntervalShort, gpu.IntervalMedium, gpu.IntervalLong}

// modelledTool replaces nvidia-smi on a machine of this process.
type modelledTool struct{ node *model.Node }

// SetTimeslice sets the interval in the model.
func (m modelledTool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	session, handle, ordinal, err := modelled(m).open(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, gpu.ErrTimeout)
	defer cancel()
	if err := m.node.Faults.Pass(ctx, "exportTableSetTimeSlice", ordinal); err != nil {
		return translated(err)
	}
	for value, name := range intervalNames {
		if name == interval {
			return translated(session.SetTimeSlice(handle, model.TimeSlice(value), true))
		}
	}
	return fmt.Errorf("unknown interval %q", interval)
}

// installedTool returns the nvidia-smi of the driver's files.
func installedTool(root string) timeslice.Tool {
	return &nvsmi.Tool{Find: func() (nvsmi.Install, error) {
		found, err := hostfs.New(root).FindDriver("")
		program, _ := found.Tool("nvidia-smi")
		return nvsmi.Install{Program: program, Library: found.Library, Root: found.HostPath}, err
	}}
}

// instrumentedTool is a tool with fault points.
type instrumentedTool struct {
	tool       timeslice.Tool
	faultPoint FaultPoint
}

func (t instrumentedTool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	return t.faultPoint("tool.SetTimeslice", func() error { return t.tool.SetTimeslice(ctx, id, interval) })
}

// reconcileIntervals configures the interval of these GPUs, and the default for the others.
func (m *Machine) reconcileIntervals(ctx context.Context, p *Process, interval gpu.Interval, gpus ...int) error {
	m.parts.intervals = map[gpu.UUID]gpu.Interval{}
	for _, i := range gpus {
		m.parts.intervals[m.gpus[i]] = interval
	}
	if err := p.layout.reconfigured(ctx); err != nil {
		return err
	}
	p.Intervals.Reconcile(ctx)
	return p.client.events.take()
}

// withInterval adds the interval to the claim's configuration.
func withInterval(rc *resourceapi.ResourceClaim, interval gpu.Interval, gpus int) *resourceapi.ResourceClaim {
	if interval == "" {
		return rc
	}
	config := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim}
	for i := range gpus {
		config.Requests = append(config.Requests, fmt.Sprintf("r%d", i))
	}
	raw := fmt.Sprintf(`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"timeSlicing":{"interval":%q}}}`, interval)
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}
	rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, config)
	return rc
}

// intervals returns the intervals in hardware.
func (m *Machine) intervals() map[gpu.UUID]gpu.Interval {
	found := map[gpu.UUID]gpu.Interval{}
	for _, g := range m.Node.GPUs() {
		found[gpu.UUID(g.UUID)] = intervalNames[g.TimeSlice]
	}
	return found
}

// intervalsAreRecorded checks that a GPU uses the default interval or one in a record of this boot, and that the interval of a prepared
// claim is in effect.
func (m *Machine) intervalsAreRecorded(records map[string]*checkpoint.Record) error {
	inForce := m.intervals()
	for id, interval := range inForce {
		noted := m.hasRecord(id, ".node.json") || m.hasRecord(id, ".claim.json")
		if interval != gpu.IntervalDefault && !noted {
			return fmt.Errorf("GPU %s has interval %s, and no record has it", id, interval)
		}
	}
	for uid, r := range records {
		if r.State != checkpoint.Done || r.BootID != m.BootID() {
			continue
		}
		for i := range r.Steps {
			if r.Steps[i].Kind != claim.StepInterval {
				continue
			}
			promised, err := claim.ParseInterval(r.Steps[i].Args)
			if err != nil {
				return err
			}
			if id := r.Steps[i].Target; inForce[id] != promised.Interval {
				return fmt.Errorf("claim %s was answered that GPU %s has interval %s, and it has %s", uid, id, promised.Interval, inForce[id])
			}
		}
	}
	return nil
}

// hasRecord reports whether there is such a record of this boot for a GPU.
func (m *Machine) hasRecord(id gpu.UUID, of string) bool {
	var note struct {
		BootID string `json:"bootID"`
	}
	raw, err := os.ReadFile(filepath.Join(m.StateDir, "intervals", string(id)+of))
	if err == nil {
		err = json.Unmarshal(raw, &note) // a truncated file is not a record
	}
	return err == nil && note.BootID == m.BootID()
}

// intervalsAreReset checks that no interval is left.
func (m *Machine) intervalsAreReset() error {
	for id, interval := range m.intervals() {
		if interval != gpu.IntervalDefault {
			return fmt.Errorf("interval %s is left on GPU %s", interval, id)
		}
	}
	files, err := os.ReadDir(filepath.Join(m.StateDir, "intervals"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, file.Name())
	}
	if len(names) > 0 {
		return fmt.Errorf("records of intervals are left: %s", strings.Join(names, ", "))
	}
	return nil
}
