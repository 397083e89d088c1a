package v1alpha1

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The numbers of claims that may share a device. A number outside of these bounds is an error only for the GPUs of its entry, so Validate
// does not check them.
const (
	MinTimeSliceReplicas = 2
	MinMPSReplicas       = 1
	MaxMPSReplicas       = 60
	MinMIGReplicas       = 1
)

const (
	// maxProductBytes is longer than any product name that NVML returns.
	maxProductBytes = 96
	// kubernetesDomain is the domain of resources that are not extended.
	kubernetesDomain = "kubernetes.io"
)

var (
	gpuModes      = []Mode{ModeWhole, ModeMIG, ModeMPS, ModeTimeSlice}
	migStrategies = []MIGStrategy{MIGStrategyNone, MIGStrategySingle, MIGStrategyMixed}

	uuidForm = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	// profileForm covers 1g.10gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me.
	profileForm = regexp.MustCompile(`^[1-9][0-9]?g\.[0-9]{1,4}gb([+-][a-z]+(\.[a-z]+)*)*$`)
)

// Validate returns nil or a *Problems. It does not check whether a GPU supports its entry, the number of replicas, or whether entries
// select the same GPU: such an error does not invalidate the other entries.
func (c *NodeConfig) Validate() error {
	p := &problems{}
	if c.Flags != nil {
		c.Flags.validate(p, "flags")
	}
	rest := -1
	for i := range c.GPUs {
		at := index("gpus", i)
		c.GPUs[i].validate(p, at)
		if c.GPUs[i].Select != nil {
			c.validateSelect(p, i)
			continue
		}
		if rest >= 0 {
			p.add(at, "select is required: gpus[%d] already matches the remaining GPUs, because it sets no select", rest)
		}
		rest = i
	}
	return p.err(KindNodeConfig)
}

func (f *NodeFlags) validate(p *problems, at string) {
	if root := f.NVIDIADriverRoot; root != nil && *root != "" && (!path.IsAbs(*root) || leavesUp(*root)) {
		p.add(join(at, "nvidiaDriverRoot"), "must be empty or an absolute path without .., got %s",
			quote(*root))
	}
	oneOf(p, join(at, "migStrategy"), f.MIGStrategy, migStrategies)
}

// leavesUp reports whether a path has an element "..". Slashes at its end and
// double ones are cleaned by Default.
func leavesUp(text string) bool { return slices.Contains(strings.Split(text, "/"), "..") }

// validateSelect checks the select of entry i. Overlapping selects are an error only on nodes with such GPUs.
func (c *NodeConfig) validateSelect(p *problems, i int) {
	sel, at := c.GPUs[i].Select, join(index("gpus", i), "select")
	if len(sel.Indices)+len(sel.UUIDs)+len(sel.Products) == 0 {
		p.add(at, "must set indices, uuids or products; without select the entry matches all remaining GPUs")
	}
	for j, number := range sel.Indices {
		if number < 0 {
			p.add(index(join(at, "indices"), j), "must be greater than or equal to 0, got %d", number)
		}
	}
	for j, uuid := range sel.UUIDs {
		if !uuidForm.MatchString(uuid) {
			p.add(index(join(at, "uuids"), j), "must be a GPU UUID as nvidia-smi -L prints it (GPU-…), got %s",
				quote(uuid))
		}
	}
	for j, glob := range sel.Products {
		if _, err := path.Match(glob, ""); err != nil || glob == "" || len(glob) > maxProductBytes {
			p.add(index(join(at, "products"), j), "must be a glob of product names of 1 to %d bytes with *, ? and [a-z], got %s",
				maxProductBytes, quote(glob))
		}
	}
	unique(p, join(at, "indices"), sel.Indices)
	unique(p, join(at, "uuids"), sel.UUIDs)
	unique(p, join(at, "products"), sel.Products)
}

func (e *GPUEntry) validate(p *problems, at string) {
	eachOf(p, join(at, "modes"), e.Modes, gpuModes)
	if e.Modes != nil && len(e.Modes) == 0 {
		p.add(join(at, "modes"), "must not be empty; supported values: %s", list(gpuModes))
	}
	for _, settings := range []struct {
		key     string
		mode    Mode
		present bool
	}{
		{"timeSlice", ModeTimeSlice, e.TimeSlice != nil},
		{"mps", ModeMPS, e.MPS != nil},
		{"mig", ModeMIG, e.MIG != nil && (e.MIG.Profiles != nil || len(e.MIG.Replicas) == 0)},
	} {
		if settings.present && !slices.Contains(e.Modes, settings.mode) {
			p.add(join(at, settings.key), "has no effect without mode %s; add it to modes or remove %s", settings.mode, settings.key)
		}
	}
	wholeMiB(p, join(at, "memory"), e.Memory)
	e.validateTimeSlice(p, join(at, "timeSlice"))
	e.validateMPS(p, join(at, "mps"))
	if e.MIG != nil {
		e.MIG.validate(p, join(at, "mig"))
	}
}

func (e *GPUEntry) validateTimeSlice(p *problems, at string) {
	if e.TimeSlice == nil || e.TimeSlice.Replicas == nil {
		if e.TimeSlice != nil || slices.Contains(e.Modes, ModeTimeSlice) {
			p.add(join(at, "replicas"), "required with mode %s: the number of claims that share the GPU, 2 or more",
				ModeTimeSlice)
		}
	}
	if e.TimeSlice == nil {
		return
	}
	oneOf(p, join(at, "interval"), e.TimeSlice.Interval, intervals)
	shareName(p, join(at, "shareName"), e.TimeSlice.ShareName)
	resourceName(p, join(at, "resourceName"), e.TimeSlice.ResourceName)
}

func (e *GPUEntry) validateMPS(p *problems, at string) {
	m := e.MPS
	if m == nil {
		if slices.Contains(e.Modes, ModeMPS) {
			p.add(at, "required with mode %s: replicas, memory.default or both", ModeMPS)
		}
		return
	}
	if m.Replicas == nil && (m.Memory == nil || m.Memory.Default == nil) {
		p.add(at, "replicas or memory.default is required: a share must have a size")
	}
	shareName(p, join(at, "shareName"), m.ShareName)
	resourceName(p, join(at, "resourceName"), m.ResourceName)
	if m.Memory != nil {
		m.Memory.validate(p, join(at, "memory"))
	}
	if threads := m.ActiveThreadPercentage; threads != nil {
		between(p, join(at, "activeThreadPercentage.default"), threads.Default, 0, 100)
		between(p, join(at, "activeThreadPercentage.total"), threads.Total, 1, 100*MaxMPSReplicas)
		if threads.Default != nil && threads.Total != nil && *threads.Default <= 100 && *threads.Total > 0 && *threads.Default > *threads.Total {
			p.add(join(at, "activeThreadPercentage.default"), "must be less than or equal to total %d, got %d", *threads.Total, *threads.Default)
		}
	}
	wholeMiB(p, join(at, "shmSize"), m.ShmSize)
	for i, namespace := range m.Namespaces {
		label(p, index(join(at, "namespaces"), i), namespace)
	}
	unique(p, join(at, "namespaces"), m.Namespaces)
}

// shareName refuses invalid values of the attribute; none is its value for devices without a share name.
func shareName(p *problems, at string, name *string) {
	if name == nil {
		return
	}
	label(p, at, *name)
	if *name == "none" {
		p.add(at, "must not be \"none\", the value of devices without a share name")
	}
}

// resourceName refuses names that are not extended resources.
func resourceName(p *problems, at string, name *string) {
	if name == nil {
		return
	}
	domain, _, qualified := strings.Cut(*name, "/")
	if !qualified || len(validation.IsQualifiedName(*name)) > 0 || domain == kubernetesDomain ||
		strings.HasSuffix(domain, "."+kubernetesDomain) {
		p.add(at, "must be an extended resource <domain>/<name>, for example nvidia.com/gpu-2gb, got %s", quote(*name))
	}
}

func (m *ShareMemory) validate(p *problems, at string) {
	before := len(p.list)
	for _, bound := range m.bounds() {
		wholeMiB(p, join(at, bound.key), bound.value)
	}
	if len(p.list) > before {
		return
	}
	ordered := []quantityAt{{"min", m.Min}, {"default", m.Default}, {"max", m.Max}}
	for i, high := range ordered {
		for _, low := range ordered[:i] {
			if low.value != nil && high.value != nil && low.value.Cmp(*high.value) > 0 {
				p.add(join(at, low.key), "must be less than or equal to %s %s, got %s", high.key, high.value, low.value)
			}
		}
	}
	m.validateStep(p, at)
}

type quantityAt struct {
	key   string
	value *resource.Quantity
}

func (m *ShareMemory) bounds() []quantityAt {
	return []quantityAt{{"default", m.Default}, {"min", m.Min}, {"max", m.Max}, {"step", m.Step}}
}

// validateStep requires default and max to be min plus a multiple of step, as the API server requires of a published device.
func (m *ShareMemory) validateStep(p *problems, at string) {
	if m.Step == nil {
		return
	}
	start := m.Step.Value()
	if m.Min != nil {
		start = m.Min.Value()
	}
	for _, bound := range []quantityAt{{"default", m.Default}, {"max", m.Max}} {
		if bound.value != nil && (bound.value.Value()-start)%m.Step.Value() != 0 {
			p.add(join(at, bound.key), "must be min plus a multiple of step %s, got %s", m.Step, bound.value)
		}
	}
}

func (m *NodeMIG) validate(p *problems, at string) {
	if m.Profiles != nil && len(m.Profiles) == 0 {
		p.add(join(at, "profiles"), "must not be empty; without it all profiles of the GPU are advertised")
	}
	for i, profile := range m.Profiles {
		checkProfile(p, index(join(at, "profiles"), i), profile)
	}
	unique(p, join(at, "profiles"), m.Profiles)
	for _, profile := range slices.Sorted(maps.Keys(m.Replicas)) {
		if profile == AllProfiles {
			continue
		}
		where := fmt.Sprintf("%s[%s]", join(at, "replicas"), profile)
		checkProfile(p, where, profile)
		if m.Profiles != nil && !slices.Contains(m.Profiles, profile) {
			p.add(where, "must be one of profiles; add it there or remove it here")
		}
	}
	for _, profile := range slices.Sorted(maps.Keys(m.ResourceNames)) {
		where := fmt.Sprintf("%s[%s]", join(at, "resourceNames"), profile)
		resourceName(p, where, new(m.ResourceNames[profile]))
		if _, shared := m.Replicas[profile]; !shared {
			p.add(where, "has no effect without replicas[%s]; add it there or remove it here", profile)
		}
	}
}

func checkProfile(p *problems, at, profile string) {
	if !profileForm.MatchString(profile) {
		p.add(at, "must be a MIG profile as nvidia-smi mig -lgip prints it, for example 1g.10gb or 1g.10gb+me, got %s",
			quote(profile))
	}
}
