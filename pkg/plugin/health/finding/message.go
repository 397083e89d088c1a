package finding

import "strings"

// Message says in one sentence what is wrong with a GPU and how to repair it. It contains no time and no count: it is in the status of every
// pod with the GPU, and a change is a write of each.
func Message(f *Finding) string {
	text := problem(f)
	if f.Flapping {
		text += "; it has returned too often, so the GPU stays out of service until it is healed (annotation heal of the Node) or the node boots"
	}
	return text
}

var actionTexts = map[string]string{
	GPUReset:          "the NVIDIA driver requires a reset of the GPU: drain the GPU and reset it",
	NodeReboot:        "the NVIDIA driver requires a reboot of the node: drain the node and reboot it",
	DrainP2P:          "the NVIDIA driver requires that peer-to-peer work with the GPU ends: delete the pods that use it together with other GPUs",
	DrainAndReset:     "the NVIDIA driver requires that work on the GPU ends before a reset: drain the GPU and reset it",
	RecoverIMEXDomain: "the NVIDIA driver requires a recovery of the IMEX domain: restart the IMEX daemons of the domain",
	BusReset:          "the NVIDIA driver requires a reset of the GPU's PCIe bus: drain the GPU and reset its PCIe bus, or reboot the node",
	SystemReboot:      "the NVIDIA driver requires a reboot of the system: drain the node and reboot it",
}

// problem is the sentence without the advice for a finding that returns.
func problem(f *Finding) string {
	switch f.Key {
	case GPULost:
		return lost(f)
	case RecoveryAction:
		if text, known := actionTexts[f.Value]; known {
			return text
		}
		return "the NVIDIA driver requires a recovery action that Prism does not know: see nvidia-smi -q on the node"
	case XID:
		return "the NVIDIA driver has reported the hardware error XID " + f.Value + ": reset or replace the GPU, then heal it (annotation heal of the Node)"
	case Memory:
		return memory(f)
	case Fabric:
		return "the GPU is not registered with the NVSwitch fabric: check nvidia-fabricmanager on the node"
	case NodeCondition:
		return "the condition " + f.Value + " of the Node is True: see its message"
	case Maintenance:
		return strings.TrimSuffix("the GPU is under maintenance: "+f.Note, ": ")
	default:
		return "the NVIDIA driver reports neither errors nor recovery actions of the GPU: only a GPU that does not answer is noticed"
	}
}

func lost(f *Finding) string {
	switch f.Value {
	case Hung:
		return "the GPU does not answer: reset it or reboot the node"
	case DeviceNode:
		return "device node " + f.Note + " is missing on the host: create it with nvidia-modprobe -u, or restart nvidia-persistenced"
	default:
		return "the GPU is lost: reset it or reboot the node"
	}
}

func memory(f *Finding) string {
	switch f.Value {
	case RowRemapFailure:
		return "a row of the GPU's memory could not be remapped: replace the GPU"
	case RowRemapPending:
		return "a row of the GPU's memory is remapped at the next reset: reset the GPU when it is free"
	default:
		return "a page of the GPU's memory is retired at the next reset: reset the GPU when it is free"
	}
}
