package finding

import (
	"errors"
	"strconv"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// observed is the result of a reading.
type observed struct {
	// found are the findings that it shows, without their begin.
	found []Finding
	// keys are the keys about which it says something: their other findings are not there.
	keys map[Key]bool
}

// actions are the values of recovery actions, by NVML's number.
var actions = map[gpu.RecoveryAction]string{
	1: GPUReset, 2: NodeReboot, 3: DrainP2P, 4: DrainAndReset, 5: RecoverIMEXDomain, 6: BusReset, 7: SystemReboot,
}

// observe derives the findings of a reading. A GPU that does not answer says nothing about its other problems.
func (r Rules) observe(reading *gpu.HealthReading) observed {
	o := observed{keys: map[Key]bool{GPULost: true}}
	add := func(key Key, value, note string, blocks bool) {
		effect := None
		if blocks {
			effect = r.effect(key)
		}
		o.found = append(o.found, Finding{GPU: reading.UUID, Key: key, Value: value, Note: note, Effect: effect})
	}
	switch {
	case errors.Is(reading.Err, gpu.ErrTimeout):
		add(GPULost, Hung, "", true)
		return o
	case reading.Err != nil:
		add(GPULost, Lost, "", true)
		return o
	case reading.MissingNode != "":
		add(GPULost, DeviceNode, reading.MissingNode, true)
	}
	o.keys[Memory], o.keys[Fabric], o.keys[Unmonitored] = true, true, true
	if reading.Action != nil {
		o.keys[RecoveryAction] = true
		if *reading.Action != gpu.RecoveryNone {
			value, known := actions[*reading.Action]
			if !known {
				value = "unknown-" + strconv.Itoa(int(*reading.Action))
			}
			add(RecoveryAction, value, "", value != RecoverIMEXDomain)
		}
	}
	for value, flag := range map[string]bool{
		RowRemapFailure: reading.RowRemapFailure, RowRemapPending: reading.RowRemapPending, RetirementPending: reading.RetirementPending,
	} {
		if flag {
			add(Memory, value, "", value == RowRemapFailure)
		}
	}
	if reading.Fabric != "" && reading.Fabric != gpu.FabricCompleted {
		add(Fabric, NotReady, "", true)
	}
	if !reading.Events && reading.Action == nil {
		add(Unmonitored, "", "", false)
	}
	return o
}
