package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeConfig says how the driver runs on a node and what the node's GPUs are
// offered as.
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Flags are settings of the process and of the resource names. For
	// FailOnInitError and NVIDIADriverRoot there are flags too, and a flag or
	// its environment variable wins; the others are set here alone.
	Flags *NodeFlags `json:"flags,omitempty"`
	// GPUs are looked up for each GPU: the entry whose select matches, else the
	// one without select. A GPU without an entry is offered whole.
	GPUs []GPUEntry `json:"gpus,omitempty"`
}

// NodeFlags are settings of the process.
type NodeFlags struct {
	// FailOnInitError ends the process when there is no driver at start.
	// Default: false.
	FailOnInitError *bool `json:"failOnInitError,omitempty"`
	// NVIDIADriverRoot is the driver's root directory on the host. Empty: found
	// by the driver. Default: empty.
	NVIDIADriverRoot *string `json:"nvidiaDriverRoot,omitempty"`
	// GDSEnabled, MOFEDEnabled and GDRCopyEnabled add the device nodes of
	// GPUDirect Storage, of InfiniBand and of GDRCopy; the first also /run/udev
	// and /etc/cufile.json, read-only. Default: false.
	GDSEnabled     *bool `json:"gdsEnabled,omitempty"`
	MOFEDEnabled   *bool `json:"mofedEnabled,omitempty"`
	GDRCopyEnabled *bool `json:"gdrcopyEnabled,omitempty"`
	// MIGStrategy is how legacy resource names are given to MIG slices.
	// Default: mixed.
	MIGStrategy *MIGStrategy `json:"migStrategy,omitempty"`
}

// MIGStrategy is how legacy resource names are given to MIG slices.
type MIGStrategy string

// The MIG strategies.
const (
	MIGStrategyNone   MIGStrategy = "none"
	MIGStrategySingle MIGStrategy = "single"
	MIGStrategyMixed  MIGStrategy = "mixed"
)

// GPUEntry says what some GPUs of the node are offered as.
type GPUEntry struct {
	// Select chooses the GPUs. Unset: all that no other entry selects.
	Select *GPUSelect `json:"select,omitempty"`
	// Modes are the ways of use to offer. Default: whole.
	Modes []Mode `json:"modes,omitempty"`
	// TimeSlice has the settings of mode timeslice, MPS and MIG those of theirs.
	TimeSlice *NodeTimeSlice `json:"timeSlice,omitempty"`
	MPS       *NodeMPS       `json:"mps,omitempty"`
	MIG       *NodeMIG       `json:"mig,omitempty"`
	// FailRequestsGreaterThanOne refuses a request of an extended resource for
	// several devices of which one is a share. Default: true.
	FailRequestsGreaterThanOne *bool `json:"failRequestsGreaterThanOne,omitempty"`
	// Origins are, by mode or MIG profile, where the entry comes from in a file of
	// another format that was translated, as sharing.mps.resources[0]: what is
	// said of the entry is said of that. Empty in a NodeConfig that was read.
	Origins map[string]string `json:"-"`
}

// GPUSelect matches a GPU that any of its lists names.
type GPUSelect struct {
	// Indices as nvidia-smi counts them.
	Indices []int32 `json:"indices,omitempty"`
	// UUIDs as nvidia-smi -L prints them.
	UUIDs []string `json:"uuids,omitempty"`
	// Products are globs of product names.
	Products []string `json:"products,omitempty"`
	// MustMatch complains of an index or a UUID that the node does not have; false
	// of neither, as one config can be for many nodes. Unset: of UUIDs, which are
	// those of one node.
	MustMatch *bool `json:"mustMatch,omitempty"`
}

// Mode is a way of using a GPU.
type Mode string

// The modes.
const (
	ModeWhole     Mode = "whole"
	ModeMIG       Mode = "mig"
	ModeMPS       Mode = "mps"
	ModeTimeSlice Mode = "timeslice"
)

// NodeTimeSlice has the settings of mode timeslice.
type NodeTimeSlice struct {
	// Replicas is how many claims may use the GPU at once, 2 or more. Needed.
	Replicas *int32 `json:"replicas,omitempty"`
	// Interval defaults to Default.
	Interval *Interval `json:"interval,omitempty"`
	// ShareName becomes the attribute shareName. Unset: none.
	ShareName *string `json:"shareName,omitempty"`
	// ResourceName is the extended resource that requests one replica, as
	// nvidia.com/gpu.shared. Unset: none.
	ResourceName *string `json:"resourceName,omitempty"`
}

// NodeMPS has the settings of mode mps.
type NodeMPS struct {
	// ShareName becomes the attribute shareName. Unset: none.
	ShareName *string `json:"shareName,omitempty"`
	// ResourceName is the extended resource that requests one share, as
	// nvidia.com/gpu-2gb. Unset: none.
	ResourceName *string `json:"resourceName,omitempty"`
	// Replicas is how many claims may share the GPU at once, 1 to 60; the MPS of
	// the node's driver may allow fewer. Unset: as many as it allows; then
	// Memory.Default is needed.
	Replicas *int32 `json:"replicas,omitempty"`
	// Memory bounds what a share may ask for.
	Memory *ShareMemory `json:"memory,omitempty"`
	// ActiveThreadPercentage bounds the part of the multiprocessors.
	ActiveThreadPercentage *ShareThreads `json:"activeThreadPercentage,omitempty"`
	// KeepWarm keeps the daemon when no share is in use. Default: false.
	KeepWarm *bool `json:"keepWarm,omitempty"`
	// ShmSize of the /dev/shm that the clients share. Default: 1Gi.
	ShmSize *resource.Quantity `json:"shmSize,omitempty"`
	// Namespaces whose claims may share this GPU. Empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
}

// ShareMemory bounds the memory of a share; all in whole MiB.
type ShareMemory struct {
	// Value for a request that names none. Unset: the GPU's part by replicas.
	Default *resource.Quantity `json:"default,omitempty"`
	// Min defaults to Step, Max to what the GPU has.
	Min *resource.Quantity `json:"min,omitempty"`
	Max *resource.Quantity `json:"max,omitempty"`
	// Step defaults to 1Mi.
	Step *resource.Quantity `json:"step,omitempty"`
}

// ShareThreads bounds the part of the multiprocessors of a share, in percent.
type ShareThreads struct {
	// Value for a request that names none; 0 is no limit. Default: 0.
	Default *int32 `json:"default,omitempty"`
	// Total of all shares of the GPU; above 100 the shares compete. Default: 100.
	Total *int32 `json:"total,omitempty"`
}

// AllProfiles stands for every MIG profile in NodeMIG.Replicas.
const AllProfiles = "*"

// NodeMIG has the settings of mode mig. Replicas and ResourceNames are also for
// slices that an administrator made, which need no mode.
type NodeMIG struct {
	// Profiles to offer, as 1g.10gb. Unset: all that the GPU has.
	Profiles []string `json:"profiles,omitempty"`
	// Replicas is, by profile, how many claims may use one slice at once. The
	// profile AllProfiles is for all that have no entry of their own.
	Replicas map[string]int32 `json:"replicas,omitempty"`
	// ResourceNames is, by key of Replicas, the extended resource that requests
	// one of them. Unset: the slice's own, which Flags.MIGStrategy decides.
	ResourceNames map[string]string `json:"resourceNames,omitempty"`
}

// Default fills unset fields, in place. Settings of modes that are not offered
// stay unset.
func (c *NodeConfig) Default() {
	c.APIVersion, c.TypeMeta.Kind = APIVersion, KindNodeConfig
	fill(&c.Flags, NodeFlags{})
	c.Flags.fill()
	for i := range c.GPUs {
		c.GPUs[i].fill()
	}
}

func (f *NodeFlags) fill() {
	fill(&f.FailOnInitError, false)
	fill(&f.NVIDIADriverRoot, "")
	fill(&f.GDSEnabled, false)
	fill(&f.MOFEDEnabled, false)
	fill(&f.GDRCopyEnabled, false)
	fill(&f.MIGStrategy, MIGStrategyMixed)
}

func (e *GPUEntry) fill() {
	if e.Modes == nil {
		e.Modes = []Mode{ModeWhole}
	}
	if e.TimeSlice != nil {
		fill(&e.TimeSlice.Interval, IntervalDefault)
	}
	if e.MPS != nil {
		e.MPS.fill()
	}
	fill(&e.FailRequestsGreaterThanOne, true)
}

func (m *NodeMPS) fill() {
	fill(&m.Memory, ShareMemory{})
	fill(&m.Memory.Step, resource.MustParse("1Mi"))
	fill(&m.Memory.Min, m.Memory.Step.DeepCopy())
	fill(&m.ActiveThreadPercentage, ShareThreads{})
	fill(&m.ActiveThreadPercentage.Default, 0)
	fill(&m.ActiveThreadPercentage.Total, 100)
	fill(&m.KeepWarm, false)
	fill(&m.ShmSize, resource.MustParse("1Gi"))
}
