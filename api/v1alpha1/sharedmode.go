package v1alpha1

import "math"

// SharedMode contains the settings that modes have in common in which several claims share an entire GPU.
type SharedMode struct {
	// Mode is the mode, and the type of its devices. Key is the key of its settings in an entry.
	Mode Mode
	Key  string
	// ShareName and ResourceName are as in the settings.
	ShareName, ResourceName *string
	// Replicas is the number of claims; nil if it is unset. MinReplicas and MaxReplicas bound it.
	Replicas                 *int32
	MinReplicas, MaxReplicas int32
	// OneShare: a claim can use only one share, whatever FailRequestsGreaterThanOne is.
	OneShare bool
}

// SharedModes returns the settings of the entry for each such mode.
func (e *GPUEntry) SharedModes() []SharedMode {
	var modes []SharedMode
	if t := e.TimeSlice; t != nil {
		modes = append(modes, SharedMode{
			Mode: ModeTimeSlice, Key: "timeSlice", ShareName: t.ShareName, ResourceName: t.ResourceName,
			Replicas: t.Replicas, MinReplicas: MinTimeSliceReplicas, MaxReplicas: math.MaxInt32,
		})
	}
	if m := e.MPS; m != nil {
		modes = append(modes, SharedMode{
			Mode: ModeMPS, Key: "mps", ShareName: m.ShareName, ResourceName: m.ResourceName,
			Replicas: m.Replicas, MinReplicas: MinMPSReplicas, MaxReplicas: MaxMPSReplicas, OneShare: true,
		})
	}
	return modes
}
