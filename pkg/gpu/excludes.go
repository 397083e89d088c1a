package gpu

import "fmt"

// Use is the part of a GPU that a claim uses, or that it left behind there, as far as it excludes others. It is comparable.
type Use struct {
	// Type is the type of device; a record of a newer version may have one that this version does not know.
	Type DeviceType
	// Device is the device's name.
	Device DeviceName
	// Shared: it is one of several shares of the device.
	Shared bool
	// Placement is the place of a MIG device. One without size may be anywhere.
	Placement Placement
	// MediaExtensions: a MIG device contains the engines that a GPU provides for one instance only.
	MediaExtensions bool
}

// next is the use of the next claim that the device is allocated to.
func next(d Device) Use { return d.Use(d.Shares().Shared()) }

// Owns reports whether it is more than the right to see the GPU.
func (u Use) Owns() bool { return u.Type != TypeMonitor }

// Excludes reports whether one GPU cannot be used in both ways at the same time, in whichever order they are named. This is the only
// place that decides it:
//
//   - A monitor device excludes nothing.
//   - The right to the performance counters of a GPU excludes only another such right.
//   - Shares of one device are beside each other, and beside no share of another one: time-sliced shares and MPS shares of a GPU are not.
//     That holds for every type of device but whole GPUs: a version prepares no share of a type that it does not know.
//   - MIG devices are beside each other if they share no memory slice and only one of them has media extensions.
//   - Everything else excludes everything, above all an unknown type: its effect on a GPU is not known either.
func Excludes(a, b Use) bool {
	if !a.Owns() || !b.Owns() {
		return false
	}
	if a.reserves() || b.reserves() {
		return a.reserves() && b.reserves()
	}
	switch a.Type {
	case TypeGPU, "":
		return true
	case TypeMIG:
		return !a.sharesWith(b) && !a.apartFrom(b)
	default:
		return !a.sharesWith(b)
	}
}

// sharesWith reports whether they are two shares of one device.
func (u Use) sharesWith(other Use) bool {
	return u.Shared && other.Shared && u.Type == other.Type && u.Device == other.Device
}

// On names the part of a GPU that is used, for messages.
func (u Use) On(id UUID) string {
	switch {
	case u.reserves():
		return fmt.Sprintf("right to the performance counters of GPU %s", id)
	case u.Type == TypeMIG:
		return fmt.Sprintf("required MIG placement on GPU %s", id)
	default:
		return fmt.Sprintf("GPU %s", id)
	}
}

// apartFrom reports whether they are two MIG devices that have nothing in common.
func (u Use) apartFrom(other Use) bool {
	placed := u.Type == TypeMIG && other.Type == TypeMIG && u.Placement.Size > 0 && other.Placement.Size > 0
	return placed && !u.Placement.Overlaps(other.Placement) && (!u.MediaExtensions || !other.MediaExtensions)
}
