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
	"github.com/prism-gpu/prism/pkg/nvsmi"
	"github.com/prism-gpu/prism/pkg/timeslice"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// turns are the intervals as the hardware has them.
var turns = []gpu.Interval{gpu.IntervalDefault, gpu.IntervalShort, gpu.IntervalMedium, gpu.IntervalLong}

// modelledTool is the driver's tool on a machine of this process.
type modelledTool struct{ node *model.Node }

// SetTimeslice asks the model.
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
	for value, name := range turns {
		if name == interval {
			return translated(session.SetTimeSlice(handle, model.TimeSlice(value), true))
		}
	}
	return fmt.Errorf("there is no interval %q", interval)
}

// installedTool is the driver's tool on a machine whose driver is files.
func installedTool(root string) timeslice.Tool {
	return &nvsmi.Tool{Find: func() (nvsmi.Install, error) {
		found, err := hostfs.New(root).FindDriver("")
		program, _ := found.Tool("nvidia-smi")
		return nvsmi.Install{Program: program, Library: found.Library, Root: found.HostPath}, err
	}}
}

// touchedTool is a tool whose runs are touches.
type touchedTool struct {
	tool  timeslice.Tool
	touch Touch
}

func (t touchedTool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	return t.touch("tool.SetTimeslice", func() error { return t.tool.SetTimeslice(ctx, id, interval) })
}

// slicing builds what sets the intervals of the node.
func (m *Machine) slicing(p *Process) {
	p.keeper = timeslice.NewKeeper(timeslice.KeeperPorts{
		Tool: p.machine.Tool, Notes: p.machine.State.Intervals, Wanted: func() (map[gpu.UUID]gpu.Interval, error) { return p.wanted, nil },
		Alone: func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
			return p.WithGPULock(ctx, id, do)
		},
		Failed: func(_ gpu.UUID, _ gpu.Interval, err error) { p.unkept = errors.Join(p.unkept, err) },
	})
}

// keep has the node's configuration want that interval on these GPUs, and on the others what a driver has by itself.
func (m *Machine) keep(ctx context.Context, p *Process, interval gpu.Interval, gpus ...int) error {
	p.wanted, p.unkept = map[gpu.UUID]gpu.Interval{}, nil
	for _, id := range m.gpus {
		p.wanted[id] = gpu.IntervalDefault
	}
	for _, i := range gpus {
		p.wanted[m.gpus[i]] = interval
	}
	p.keeper.Keep(ctx)
	return p.unkept
}

// inTurns adds to the claim that its GPUs have that interval.
func inTurns(rc *resourceapi.ResourceClaim, interval gpu.Interval, gpus int) *resourceapi.ResourceClaim {
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

// intervals are what the hardware has.
func (m *Machine) intervals() map[gpu.UUID]gpu.Interval {
	found := map[gpu.UUID]gpu.Interval{}
	for _, g := range m.Node.GPUs() {
		found[gpu.UUID(g.UUID)] = turns[g.TimeSlice]
	}
	return found
}

// intervalsAreNoted: a GPU has the driver's own interval, or a note of this boot says which other; and the one that a claim was
// promised is in force.
func (m *Machine) intervalsAreNoted(records map[string]*checkpoint.Record) error {
	inForce := m.intervals()
	for id, interval := range inForce {
		noted := m.notes(id, ".node.json") || m.notes(id, ".claim.json")
		if interval != gpu.IntervalDefault && !noted {
			return fmt.Errorf("GPU %s has interval %s, and nothing tells of it", id, interval)
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

// notes tells whether there is such a note of a GPU of this boot.
func (m *Machine) notes(id gpu.UUID, of string) bool {
	var note struct {
		BootID string `json:"bootID"`
	}
	raw, err := os.ReadFile(filepath.Join(m.StateDir, "intervals", string(id)+of))
	if err == nil {
		err = json.Unmarshal(raw, &note) // half of one is none
	}
	return err == nil && note.BootID == m.BootID()
}

// intervalsAreBack checks that nothing is left of any interval.
func (m *Machine) intervalsAreBack() error {
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
		return fmt.Errorf("notes of intervals are left: %s", strings.Join(names, ", "))
	}
	return nil
}
