package layout

import (
	"errors"
	"slices"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// Snapshot holds the GPUs of a node at one moment, and their layout. It is immutable.
type Snapshot struct {
	// Node is never nil.
	Node *gpu.Node
	// Layout contains an entry for every GPU of Node; it is nil if Err explains why it is not known.
	Layout gpu.Layout
	Err    error
	// Leaving are the advertised devices that get no new claims, because their GPU's layout changes when they are released.
	Leaving map[gpu.PoolDevice]bool
	// Standby: another process of the node may publish, and advertise another layout at any moment.
	Standby bool
	// Flags are the settings in the last valid configuration, which may be one from before the start; nil if it contains none.
	Flags  *v1alpha1.NodeFlags
	Status Status

	view *inventory.View
}

// Status lists the parts of a configuration that are not applied.
type Status struct {
	// Changing counts the GPUs whose layout changes when their devices are released.
	Changing int
	// Problems lists the reasons of Events for which the configuration is not applied, sorted.
	Problems []string
}

// errNewGPU is the reason why the layout is not known for the moment.
var errNewGPU = errors.New("a GPU was found whose layout was not determined yet")

// on returns the snapshot with the GPUs of a later view.
func (s *Snapshot) on(view *inventory.View) *Snapshot {
	later := *s
	later.Node, later.view = view.Node, view
	if s.Err != nil {
		return &later
	}
	later.Layout = gpu.Layout{}
	for i := range view.Node.GPUs {
		id := view.Node.GPUs[i].UUID
		advertised, known := s.Layout[id]
		if !known {
			later.Layout, later.Leaving, later.Err = nil, nil, errNewGPU
			return &later
		}
		later.Layout[id] = advertised
	}
	later.Node = later.Layout.Sized(view.Node)
	return &later
}

// Devices lists the advertised devices; none while the layout is not known.
func (s *Snapshot) Devices() []gpu.Device {
	if s.Err != nil {
		return nil
	}
	var devices []gpu.Device
	for i := range s.Node.GPUs {
		g := &s.Node.GPUs[i]
		devices = append(devices, s.Layout.Of(g).Devices(g)...)
	}
	return devices
}

// hasAny reports whether a device of one of these types is advertised.
func (s *Snapshot) hasAny(types []gpu.DeviceType) bool {
	return len(types) > 0 && slices.ContainsFunc(s.Devices(), func(d gpu.Device) bool { return slices.Contains(types, d.Type()) })
}

// Intervals returns the time-slice interval of every GPU that uses one: the configured interval if the GPU is advertised in time-sliced
// shares, else the NVIDIA driver's default. GPUs in MIG mode and lost GPUs use none. The error explains why the intervals are not known; it is
// gpu.ErrDriverNotLoaded if there is no driver.
func (s *Snapshot) Intervals() (map[gpu.UUID]gpu.Interval, error) {
	if errors.Is(s.view.Err, gpu.ErrDriverNotLoaded) {
		return nil, s.view.Err
	}
	if s.Err != nil {
		return nil, s.Err
	}
	wanted := map[gpu.UUID]gpu.Interval{}
	for i := range s.Node.GPUs {
		g := &s.Node.GPUs[i]
		if g.Lost || g.MIG != nil && g.MIG.Mode.Enabled {
			continue
		}
		wanted[g.UUID] = gpu.IntervalDefault
		advertised := s.Layout.Of(g)
		shared := slices.ContainsFunc(advertised.Devices(g), func(d gpu.Device) bool { return d.Type() == gpu.TypeTimeSlice })
		if shared && advertised.TimeSlice.Interval != "" { // without shared counters the GPU may be advertised in another mode
			wanted[g.UUID] = advertised.TimeSlice.Interval
		}
	}
	return wanted, nil
}
