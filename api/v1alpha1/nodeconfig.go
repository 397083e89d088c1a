package v1alpha1

import (
	"path"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeConfig configures how the driver runs on a node and how it advertises the GPUs of the node.
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Flags are settings of the process and of resource names. The flags --fail-on-init-error and --driver-root of the plugin and their
	// environment variables take precedence; there are no flags for the other settings.
	Flags *NodeFlags `json:"flags,omitempty"`
	// GPUs lists how GPUs are advertised. For each GPU the entry whose select matches is used, else the entry without select. A GPU
	// without an entry is advertised whole.
	GPUs []GPUEntry `json:"gpus,omitempty"`
}

// NodeFlags are settings of the process.
type NodeFlags struct {
	// FailOnInitError makes the process exit if there is no NVIDIA driver at start. Default: false.
	FailOnInitError *bool `json:"failOnInitError,omitempty"`
	// NVIDIADriverRoot is the root directory of the NVIDIA driver on the host.
	// Empty: detected. Default: empty.
	NVIDIADriverRoot *string `json:"nvidiaDriverRoot,omitempty"`
	// GDSEnabled adds the device nodes of GPUDirect Storage to containers, and
	// /run/udev and /etc/cufile.json read-only. Default: false.
	GDSEnabled *bool `json:"gdsEnabled,omitempty"`
	// MOFEDEnabled adds the device nodes of InfiniBand. Default: false.
	MOFEDEnabled *bool `json:"mofedEnabled,omitempty"`
	// GDRCopyEnabled adds the device nodes of GDRCopy. Default: false.
	GDRCopyEnabled *bool `json:"gdrcopyEnabled,omitempty"`
	// MIGStrategy selects the extended resource names of MIG devices. Default: mixed.
	MIGStrategy *MIGStrategy `json:"migStrategy,omitempty"`
}

// MIGStrategy selects the extended resource names of MIG devices.
type MIGStrategy string

// The MIG strategies.
const (
	MIGStrategyNone   MIGStrategy = "none"
	MIGStrategySingle MIGStrategy = "single"
	MIGStrategyMixed  MIGStrategy = "mixed"
)

// GPUEntry configures how some GPUs of the node are advertised.
type GPUEntry struct {
	// Select selects the GPUs of this entry. Unset: all that no other entry selects.
	Select *GPUSelect `json:"select,omitempty"`
	// Modes are the sharing modes to advertise. Default: whole.
	Modes []Mode `json:"modes,omitempty"`
	// TimeSlice contains the settings of mode timeslice.
	TimeSlice *NodeTimeSlice `json:"timeSlice,omitempty"`
	// MPS contains the settings of mode mps.
	MPS *NodeMPS `json:"mps,omitempty"`
	// MIG contains the settings of mode mig.
	MIG *NodeMIG `json:"mig,omitempty"`
	// Memory is the memory of a GPU for which the driver reports none because it uses the system's memory, a multiple of 1Mi. For other
	// GPUs it is ignored. Unset: the memory of the system.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// FailRequestsGreaterThanOne refuses requests of an extended resource for more than one device if one of them is a share. Requests for
	// more than one MPS share are always refused. Default: true.
	FailRequestsGreaterThanOne *bool `json:"failRequestsGreaterThanOne,omitempty"`
	// Origins maps modes and MIG profiles to the source of the entry in a translated file of another format, for example
	// sharing.mps.resources[0]. Errors about the entry name it. It is empty in a decoded NodeConfig.
	Origins map[string]string `json:"-"`
}

// GPUSelect matches a GPU that is in any of its lists.
type GPUSelect struct {
	// Indices of GPUs, as nvidia-smi prints them.
	Indices []int32 `json:"indices,omitempty"`
	// UUIDs of GPUs, as nvidia-smi -L prints them.
	UUIDs []string `json:"uuids,omitempty"`
	// Products are globs of product names, case-insensitive, as NVML spells them (NVIDIA H100*) or as the node label nvidia.com/gpu.product
	// does (NVIDIA-H100*).
	Products []string `json:"products,omitempty"`
	// MustMatch configures how the driver reports that the node lacks an index, a UUID or a product, or that its GPUs lack a MIG profile of
	// the entry. True: as a problem. False: not at all, for a configuration of many nodes. Unset: a missing UUID or profile to advertise is
	// a problem, everything else is mentioned in an Event.
	MustMatch *bool `json:"mustMatch,omitempty"`
}

// Mode is a sharing mode of a GPU.
type Mode string

// The modes.
const (
	ModeWhole     Mode = "whole"
	ModeMIG       Mode = "mig"
	ModeMPS       Mode = "mps"
	ModeTimeSlice Mode = "timeslice"
)

// NodeTimeSlice contains the settings of mode timeslice.
type NodeTimeSlice struct {
	// Replicas is the number of claims that may share the GPU, 2 or more. Required.
	Replicas *int32 `json:"replicas,omitempty"`
	// Interval is the time-slice interval. Default: Default.
	Interval *Interval `json:"interval,omitempty"`
	// ShareName is the attribute shareName of the device. Unset: none.
	ShareName *string `json:"shareName,omitempty"`
	// ResourceName is the extended resource that requests one share, for example
	// nvidia.com/gpu.shared. Unset: none.
	ResourceName *string `json:"resourceName,omitempty"`
}

// NodeMPS contains the settings of mode mps.
type NodeMPS struct {
	// ShareName is the attribute shareName of the device. Unset: none.
	ShareName *string `json:"shareName,omitempty"`
	// ResourceName is the extended resource that requests one share, for example
	// nvidia.com/gpu-2gb. Unset: none.
	ResourceName *string `json:"resourceName,omitempty"`
	// Replicas is the number of claims that may share the GPU, 1 to 60; MPS supports 48 before CUDA 13.1. Unset: the supported maximum;
	// then memory.default is required.
	Replicas *int32 `json:"replicas,omitempty"`
	// Memory limits the memory that a share may request.
	Memory *ShareMemory `json:"memory,omitempty"`
	// ActiveThreadPercentage limits the portion of the SMs of a share.
	ActiveThreadPercentage *ShareThreads `json:"activeThreadPercentage,omitempty"`
	// ShmSize is the size of the /dev/shm that MPS clients share. A change waits
	// for the next MPS control daemon. Default: 1Gi.
	ShmSize *resource.Quantity `json:"shmSize,omitempty"`
	// Namespaces whose claims may request MPS shares of this GPU. Unset: all.
	Namespaces []string `json:"namespaces,omitempty"`
}

// ShareMemory limits the memory of a share, in multiples of 1Mi. The memory of all shares is the memory of the GPU less 512Mi, or all of it
// if min and max are equal and the shares need it.
type ShareMemory struct {
	// Default is the memory of a request without a value. Unset: the memory of all
	// shares divided by replicas.
	Default *resource.Quantity `json:"default,omitempty"`
	// Min is the smallest memory of a share. Unset: step.
	Min *resource.Quantity `json:"min,omitempty"`
	// Max is the largest memory of a share. Unset: the memory of all shares.
	Max *resource.Quantity `json:"max,omitempty"`
	// Step is the increment from min on. Default: 1Mi.
	Step *resource.Quantity `json:"step,omitempty"`
}

// ShareThreads limits the portion of the SMs of a share, in percent.
type ShareThreads struct {
	// Default is the percentage of a request without a value, at most total; 0 is unlimited. Default: 0.
	Default *int32 `json:"default,omitempty"`
	// Total is the sum over all shares of the GPU; a total above 100 oversubscribes the SMs. Default: 100.
	Total *int32 `json:"total,omitempty"`
}

// AllProfiles is the key of NodeMIG.Replicas for every MIG profile.
const AllProfiles = "*"

// NodeMIG contains the settings of mode mig. Replicas and ResourceNames also apply to pre-created (static) MIG devices, which need no mode.
type NodeMIG struct {
	// Profiles to advertise, for example 1g.10gb. Unset: all profiles of the GPU.
	Profiles []string `json:"profiles,omitempty"`
	// Replicas is, by profile, the number of claims that may share one MIG device. The key * is for all profiles without an entry.
	Replicas map[string]int32 `json:"replicas,omitempty"`
	// ResourceNames is, by key of replicas, the extended resource that requests one share. Unset: the name of the MIG device according to
	// flags.migStrategy.
	ResourceNames map[string]string `json:"resourceNames,omitempty"`
}

// Default fills unset fields, in place. Settings of modes that are not
// advertised stay unset.
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
	if *f.NVIDIADriverRoot != "" {
		*f.NVIDIADriverRoot = path.Clean(*f.NVIDIADriverRoot)
	}
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
	fill(&m.ShmSize, resource.MustParse("1Gi"))
}
