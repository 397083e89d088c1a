package claim

import (
	"encoding/json"
	"fmt"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepMPS is the kind of the step that has an MPS control daemon serve a GPU or MIG device. Several claims share its effect.
const StepMPS = "mps"

// MPS is the Args of a step of kind StepMPS: how one result uses the daemon, and what the daemon is started with if it is not running.
type MPS struct {
	MPSUse
	// Default are the settings of the daemon for all of its clients.
	Default MPSDefaults `json:"default"`
	// MIG is the MIG device that the daemon serves, which an earlier step of the claim made or an administrator; nil for a GPU.
	MIG *MIG `json:"mig,omitempty"`
}

// MPSUse is how one result is used as an MPS client.
type MPSUse struct {
	// Daemon is the control daemon of the device.
	Daemon gpu.MPSDaemonID `json:"daemon"`
	// MemoryMiB limits the memory of each process; 0 for no limit but the daemon's.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// ActiveThreadPercentage limits the SMs of each process; 0 for no limit but the daemon's.
	ActiveThreadPercentage int `json:"activeThreadPercentage,omitempty"`
}

// MPSDefaults are the settings of a control daemon for all of its clients.
type MPSDefaults struct {
	// MemoryMiB is the most that a client may have; 0 for no limit.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// ActiveThreadPercentage is the most that a client may have; 0 for no limit.
	ActiveThreadPercentage int `json:"activeThreadPercentage,omitempty"`
	// ShmBytes is the size of the /dev/shm that the clients share.
	ShmBytes int64 `json:"shmBytes"`
}

// ParseMPS reads the Args of a step of kind StepMPS.
func ParseMPS(args json.RawMessage) (m MPS, err error) {
	if err := json.Unmarshal(args, &m); err != nil {
		return m, fmt.Errorf("reading the arguments of step %s: %w", StepMPS, err)
	}
	return m, nil
}

// mpsShare plans GPUs that several claims share with MPS.
type mpsShare struct{}

// Type is gpu.TypeMPS.
func (mpsShare) Type() gpu.DeviceType { return gpu.TypeMPS }

// HasClass knows mps.<driver>.
func (mpsShare) HasClass(class, driver string) bool { return class == classOf(gpu.TypeMPS, driver) }

// Supports what this version does.
func (mpsShare) Supports(kind string, config v1alpha1.Config) error { return supported(kind, config) }

// Admit refuses admin access.
func (mpsShare) Admit(r *Result, driver string) error {
	if r.Admin {
		return r.refuse(monitorFix(driver), "MPS shares cannot be requested with adminAccess")
	}
	return nil
}

// Plan turns the GPU's MIG mode off where it may be on.
func (mpsShare) Plan(p *Plan, r *Result, _ Options, modes gpu.Modes) error {
	p.withoutMIG(r, modes)
	return nil
}

// Resource is the node's name for the shares; empty without one.
func (mpsShare) Resource(_ gpu.Device, modes gpu.Modes) string {
	if modes.MPS == nil {
		return ""
	}
	return modes.MPS.Resource
}
