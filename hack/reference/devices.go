package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// meaning describes a published name.
type meaning struct{ name, text string }

// rare are names that the GPUs of the sample node lack.
var rare = []string{publish.CapEncoders}

var attributeMeanings = []meaning{
	{publish.AttrType, "type of the device"},
	{publish.AttrUUID, "UUID of the GPU as printed by `nvidia-smi -L`; for a pre-created MIG device, with the ID of the profile and the first memory slice"},
	{publish.AttrParentUUID, "UUID of the physical GPU"},
	{publish.AttrIndex, "index of the GPU, as printed by `nvidia-smi`; may change at a reboot"},
	{publish.AttrMinor, "minor number of the device node; may change at a reboot"},
	{publish.AttrProductName, "product name that NVML returns"},
	{publish.AttrBrand, "brand that NVML returns"},
	{publish.AttrArchitecture, "architecture of the GPU"},
	{publish.AttrAddressingMode, "how the GPU accesses system memory: `None`, `HMM` or `ATS`; `unknown` if the driver does not report it"},
	{publish.AttrCUDAComputeCapability, "CUDA compute capability, as a semantic version"},
	{publish.AttrDriverVersion, "version of the NVIDIA driver, as a semantic version"},
	{publish.AttrCUDADriverVersion, "latest CUDA version that the driver supports, as a semantic version"},
	{publish.AttrProfile, "MIG profile; `none` for other devices"},
	{publish.AttrShareName, "`shareName` of the node configuration; `none` if not set"},
	{publish.AttrReplicas, "how many claims may share the device"},
	{publish.AttrMemoryEnforcement, "how memory is limited: `none`; `cooperative`: by MPS, which processes can evade; `container`: by the driver for each " +
		"container; `hardware`: the device owns the memory"},
	{publish.AttrPCIBusID, "PCI address; standard attribute, if known"},
	{publish.AttrPCIeRoot, "PCIe root complex; standard attribute, if known"},
	{publish.AttrNUMANode, "NUMA node; standard attribute, if known"},
}

var capacityMeanings = []meaning{
	{publish.CapMemory, "device memory"},
	{publish.CapMultiprocessors, "SMs"},
	{publish.CapCopyEngines, "copy engines"},
	{publish.CapDecoders, "NVDEC engines"},
	{publish.CapEncoders, "NVENC engines, if the driver reports them"},
	{publish.CapJPEGEngines, "NVJPG engines"},
	{publish.CapOFAEngines, "OFA engines"},
	{publish.CapShares, "claims that may share the device; each consumes 1"},
	{publish.CapActiveThreadPercentage, "percentages of SMs that MPS shares may request; 0 is unlimited"},
	{publish.CapGPUs, "GPUs that the monitor device shows"},
	{driverName + "/" + publish.CapMIGMemory, "memory of a MIG device, for requests by capacity"},
	{driverName + "/" + profileCapacity, "number of claims for a MIG device of that profile, for requests by capacity; without `.`, `+` as `_`, `-` as `_no_`"},
}

var taints = []meaning{
	{"not-released", "the cleanup of an earlier claim is pending on the device"},
	{"config-change", "the node configuration no longer advertises the device; it is withdrawn when it is released"},
	{"conflict", "a device plugin or another DRA driver allocates the GPUs of the node: value `device-plugin` or `dra-driver`"},
	{string(gpu.TypeMPS) + publish.UnavailableSuffix, "the MPS service of the node does not answer; value `failed`: the control daemon of this GPU, or its server, could not be started again"},
}

// findingTaints are the taints of findings, with the effects that they may have.
var findingTaints = []struct {
	key          finding.Key
	effect, text string
}{
	{finding.GPULost, "`NoSchedule`", "the GPU does not answer (`lost`, `hung`), or the host lacks a device node that its containers need (`device-node`)"},
	{finding.RecoveryAction, "`NoSchedule`; `None` for `recover-imex-domain`", "the NVIDIA driver requires a repair: value `gpu-reset`, `node-reboot`, …"},
	{finding.XID, "`NoSchedule`", "the NVIDIA driver has reported a hardware error; the value is the code"},
	{finding.Memory, "`NoSchedule` for `row-remap-failure`; `None`", "memory of the GPU could not be repaired, or is at its next reset: value `row-remap-pending`, `retirement-pending`"},
	{finding.Fabric, "`NoSchedule`", "the GPU is not registered with the NVSwitch fabric"},
	{finding.NodeCondition, "`NoSchedule`", "a condition of the Node concerns the GPU; the value is its type"},
	{finding.Maintenance, "`NoSchedule`", "an administrator has taken the GPU out of service"},
	{finding.Unmonitored, "`None`", "the NVIDIA driver reports neither errors nor recovery actions of the GPU"},
}

// profileCapacity stands for the capacities that are named after profiles.
const profileCapacity = "p<profile>"

// devicesPage documents the output of publish.Resources for the sample node.
func devicesPage(root string) (string, error) {
	devices, err := samples()
	if err != nil {
		return "", err
	}
	out := newText("ResourceSlices", "pkg/plugin/publish, run on a simulated node")
	out.para("Attributes and capacities of every device type, with the values of a node with " + code(stringOf(devices[0].device, publish.AttrProductName)) +
		" GPUs. A dash means that devices of the type lack the name: a CEL expression that reads a missing attribute is an error, so test " +
		"the type first, or use `.?name.orValue(…)`. Unqualified names are in the domain of the driver, here `" + driverName + "`.")
	out.heading("Devices")
	t := table{head: []string{"device", "name", "pool", "`allowMultipleAllocations`"}}
	for _, p := range devices {
		shared := p.device.AllowMultipleAllocations != nil && *p.device.AllowMultipleAllocations
		t.row(p.title, code(p.device.Name), code(p.pool), strconv.FormatBool(shared))
	}
	out.table(t)
	if err := attributeTables(out, devices); err != nil {
		return "", err
	}
	out.heading("Counters")
	out.para("The pool of a GPU that is advertised in several modes has one set of shared counters: `memory`, `memory-slice-<n>` and, if profiles use " +
		"them, `media-extensions`. The whole GPU, its MPS shares and its time-sliced device consume all of them, a MIG device its memory and its memory slices.")
	out.heading("Taints")
	t = table{head: []string{"key", "effect", "meaning"}}
	for _, taint := range taints {
		if err := publishes(root, taint.name); err != nil {
			return "", err
		}
		t.row(code(driverName+"/"+taint.name), code("NoSchedule"), taint.text)
	}
	for _, taint := range findingTaints {
		t.row(code(driverName+"/"+string(taint.key)), taint.effect, taint.text)
	}
	out.table(t)
	return out.String(), nil
}

// publishes returns an error if no Go file of pkg/plugin/publish contains the text as a literal.
func publishes(root, text string) error {
	files, err := filepath.Glob(filepath.Join(root, "pkg/plugin/publish/*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(content), strconv.Quote(text)) {
			return nil
		}
	}
	return fmt.Errorf("pkg/plugin/publish does not contain %q any more", text)
}

// attributeTables writes the tables of attributes and capacities. A published name without a meaning is an error, and so is the reverse.
func attributeTables(out *text, devices []published) error {
	for _, part := range []struct {
		title    string
		meanings []meaning
		read     func(resourceapi.Device) map[string]string
	}{{"Attributes", attributeMeanings, attributesOf}, {"Capacities", capacityMeanings, capacitiesOf}} {
		head := []string{"name", "meaning"}
		values := make([]map[string]string, len(devices))
		unexplained := sets.New[string]()
		for i, p := range devices {
			head, values[i] = append(head, p.title), part.read(p.device)
			unexplained = unexplained.Union(sets.KeySet(values[i]))
		}
		t := table{head: head}
		for _, m := range part.meanings {
			if !unexplained.Has(m.name) && !slices.Contains(rare, m.name) {
				return fmt.Errorf("%s: no device of the sample node publishes %s", part.title, m.name)
			}
			unexplained.Delete(m.name)
			cells := []string{code(m.name), m.text}
			for _, v := range values {
				cells = append(cells, code(v[m.name]))
			}
			t.row(cells...)
		}
		if left := sets.List(unexplained); len(left) > 0 {
			return fmt.Errorf("%s: the reference has no meaning of %s", part.title, strings.Join(left, ", "))
		}
		out.heading(part.title)
		out.table(t)
	}
	return nil
}

// attributesOf are the values of a device's attributes by name.
func attributesOf(d resourceapi.Device) map[string]string {
	values := map[string]string{}
	for name, a := range d.Attributes {
		values[string(name)] = attributeValue(a)
	}
	return values
}

// capacitiesOf are the values of a device's capacities by name; the name of a profile's capacity is profileCapacity.
func capacitiesOf(d resourceapi.Device) map[string]string {
	values := map[string]string{}
	for name, c := range d.Capacity {
		key := string(name)
		if short, qualified := strings.CutPrefix(key, driverName+"/p"); qualified && short != "" {
			key = driverName + "/" + profileCapacity
		}
		values[key] = c.Value.String()
	}
	return values
}

func attributeValue(a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.IntValue != nil:
		return strconv.FormatInt(*a.IntValue, 10)
	case a.VersionValue != nil:
		return *a.VersionValue
	default:
		return strings.Join(slices.Clone(a.StringValues), ", ")
	}
}
