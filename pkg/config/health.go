package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Health configures which problems of GPUs keep claims away.
type Health struct {
	// XIDs decides about codes of XID errors: XIDTaint or XIDIgnore by code.
	XIDs XIDActions `json:"xids,omitempty"`
	// NoExecute are the keys of taints that also evict pods.
	NoExecute Names `json:"noExecute,omitempty"`
	// NodeConditions are the types of conditions of the Node that, while True, taint GPUs.
	NodeConditions Names `json:"nodeConditions,omitempty"`
	// DisableChecks and EnableChecks are lists of codes as in the variables DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS of NVIDIA's
	// device plugin; XIDs take precedence.
	DisableChecks string `json:"disableChecks,omitempty"`
	EnableChecks  string `json:"enableChecks,omitempty"`
}

// The actions at an XID error.
const (
	XIDTaint  = "Taint"
	XIDIgnore = "Ignore"
)

// XIDActions are actions by code, in flags and environment variables "<code>=<action>" separated by commas. Setting them again replaces them.
type XIDActions map[string]string

// maxXID is the largest code of XID errors.
const maxXID = 999

// HealthKeys are the keys of taints that may evict pods.
var HealthKeys = []string{"gpu-lost", "recovery-action", "xid", "memory", "fabric", "node-condition", "maintenance"}

// String is the list with commas.
func (x *XIDActions) String() string {
	var all []string
	for _, code := range slices.Sorted(maps.Keys(*x)) {
		all = append(all, code+"="+(*x)[code])
	}
	return strings.Join(all, ",")
}

// Set replaces the actions; an empty text is none.
func (x *XIDActions) Set(text string) error {
	*x = nil
	for _, pair := range strings.Split(text, ",") {
		if pair == "" {
			continue
		}
		if *x == nil {
			*x = XIDActions{}
		}
		code, action, _ := strings.Cut(pair, "=")
		(*x)[code] = action
	}
	return nil
}

// Type is the type in help texts.
func (*XIDActions) Type() string { return "xids" }

// Taints returns whether each code taints GPUs. The actions are valid.
func (x XIDActions) Taints() map[uint64]bool {
	all := map[uint64]bool{}
	for text, action := range x {
		if code, err := strconv.ParseUint(text, 10, 64); err == nil {
			all[code] = action == XIDTaint
		}
	}
	return all
}

// XIDDecisions returns whether codes taint GPUs, and the decision about all other codes; nil for none. As in the device plugin, the list of
// enabled codes takes precedence over the list of disabled ones, "all" or "xids" in a list stands for all codes, and other words are ignored.
func (h *Health) XIDDecisions() (codes map[uint64]bool, others *bool) {
	disabled, allDisabled := codesOf(h.DisableChecks)
	enabled, allEnabled := codesOf(h.EnableChecks)
	codes = map[uint64]bool{}
	if !allEnabled {
		for _, code := range disabled {
			codes[code] = false
		}
		for _, code := range enabled {
			codes[code] = true
		}
	}
	if allEnabled || allDisabled {
		others = &allEnabled
	}
	maps.Copy(codes, h.XIDs.Taints())
	return codes, others
}

// codesOf parses a list of codes of the device plugin.
func codesOf(list string) (codes []uint64, all bool) {
	for _, word := range strings.Split(strings.ToLower(list), ",") {
		word = strings.TrimSpace(word)
		if word == "all" || word == "xids" {
			return nil, true
		}
		if code, err := strconv.ParseUint(word, 10, 64); err == nil {
			codes = append(codes, code)
		}
	}
	return codes, false
}

// flags binds every field to a flag.
func (h *Health) flags(f *pflag.FlagSet) {
	f.Var(&h.XIDs, "health-xids", "what XID errors do, as <code>="+XIDTaint+" or <code>="+XIDIgnore+", separated by commas; other codes: as the NVIDIA driver "+
		"and Prism's tables decide")
	f.Var(&h.NoExecute, "health-no-execute", "keys of taints of sick GPUs that evict pods, whatever their disruption budgets: "+strings.Join(HealthKeys, ", "))
	f.Var(&h.NodeConditions, "health-node-conditions", "types of conditions of the Node that, while True, taint the GPUs that their message or reason names, or all")
	f.StringVar(&h.DisableChecks, "health-disable-checks", h.DisableChecks, "codes of XID errors that taint no GPU, or all, as DP_DISABLE_HEALTHCHECKS of NVIDIA's "+
		"device plugin; --health-xids takes precedence")
	f.StringVar(&h.EnableChecks, "health-enable-checks", h.EnableChecks, "codes of XID errors that always taint GPUs, or all, as DP_ENABLE_HEALTHCHECKS of NVIDIA's "+
		"device plugin; it takes precedence over --health-disable-checks")
}

func (h *Health) validate(bad invalid) {
	for _, text := range slices.Sorted(maps.Keys(h.XIDs)) {
		if code, err := strconv.Atoi(text); err != nil || code < 1 || code > maxXID || strconv.Itoa(code) != text {
			bad("health-xids", "codes must be from 1 to %d, got %q", maxXID, text)
			return
		}
		if action := h.XIDs[text]; action != XIDTaint && action != XIDIgnore {
			bad("health-xids", "unsupported value %q of code %s; supported values: %s, %s", action, text, XIDTaint, XIDIgnore)
			return
		}
	}
	for _, key := range h.NoExecute {
		if !slices.Contains(HealthKeys, key) {
			bad("health-no-execute", "unknown key %q; valid keys: %s", key, strings.Join(HealthKeys, ", "))
			return
		}
	}
	for _, condition := range h.NodeConditions {
		// The type is the value of a taint.
		if condition == "" || len(validation.IsValidLabelValue(condition)) > 0 {
			bad("health-node-conditions", "must be types of conditions without a prefix, such as GpuXidError, got %q", condition)
			return
		}
	}
}
