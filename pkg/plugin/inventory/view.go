package inventory

import (
	"reflect"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// View is the state of the node at one moment. It is immutable; a change results in a new View.
type View struct {
	// Node lists the driver, its GPUs and its faulty GPUs; a lost GPU that has answered before is in both lists. It is never nil, and empty
	// without a driver.
	Node *gpu.Node
	// Common contains the edits for every container with a GPU of this driver; nil without a driver. Copy before changing.
	Common *specs.ContainerEdits
	// Root is the driver installation; the zero value without one.
	Root hostfs.DriverRoot
	// Err says why there is no driver, nil if there is one. Faulty GPUs do not set Err.
	Err error
	// At is the time at which this state was first seen.
	At time.Time

	// readings are the results of the poll that followed the inspection.
	readings []gpu.HealthReading
	replaced chan struct{}
}

// newView returns an empty view with that reason.
func newView(reason error) *View {
	return &View{Node: &gpu.Node{}, Err: reason, replaced: make(chan struct{})}
}

// Replaced returns a channel that is closed when the inventory publishes a newer view. A reader that loops over Current and Replaced always
// sees the last state.
func (v *View) Replaced() <-chan struct{} { return v.replaced }

// same reports whether two views show the same state, apart from their time.
func (v *View) same(other *View) bool {
	return v.Root == other.Root && text(v.Err) == text(other.Err) && v.Node.Driver == other.Node.Driver &&
		reflect.DeepEqual(v.Node.GPUs, other.Node.GPUs) && sameFaults(v.Node.Faults, other.Node.Faults) &&
		reflect.DeepEqual(v.Common, other.Common)
}

// sameFaults compares errors by their texts: their values differ each time.
func sameFaults(a, b []gpu.Fault) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Index != b[i].Index || a[i].UUID != b[i].UUID || a[i].BusID != b[i].BusID || text(a[i].Err) != text(b[i].Err) {
			return false
		}
	}
	return true
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
