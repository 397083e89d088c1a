package nodeconfig

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// chosen are the GPUs that a key devices means.
type chosen struct {
	all bool
	// gpus are empty for all; counted means that a number stands for them, so that the node may have fewer.
	gpus    []gpuRef
	counted bool
}

// gpuRef names a GPU by its UUID in lower case after the prefix, or, if that is empty, by its index.
type gpuRef struct {
	index int32
	uuid  string
}

func (r gpuRef) String() string {
	if r.uuid != "" {
		return r.uuid
	}
	return fmt.Sprintf("GPU %d", r.index)
}

// mostGPUs is more than any node has.
const mostGPUs = 64

var (
	gpuUUID  = regexp.MustCompile(`^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	migRef   = regexp.MustCompile(`^([0-9]+:[0-9]+|MIG-.+)$`)
	gpuIndex = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// devices reads a key devices: all, a number of them, or a list. With a profile the devices are MIG devices; GPUs in a list
// then stand for the MIG devices on them.
func (t *translation) devices(at string, value any, profile string) (chosen, bool) {
	switch value := value.(type) {
	case nil:
		return chosen{all: true}, true
	case string:
		if value == "all" {
			return chosen{all: true}, true
		}
		t.refuse(at, "devices set as '%s' but the only valid string input is 'all'; list GPUs by index or UUID", shorten(value))
		return chosen{}, false
	case float64:
		return t.count(at, value, profile)
	case []any:
		return t.list(at, value)
	}
	t.refuse(at, "unrecognized type for devices spec; allowed: all, a number, or a list of indices and UUIDs of GPUs")
	return chosen{}, false
}

// count takes the first GPUs. The device plugin takes any.
func (t *translation) count(at string, n float64, profile string) (chosen, bool) {
	switch {
	case n != math.Trunc(n) || n < 1:
		t.refuse(at, "devices set as '%v' but a count of devices must be > 0", n)
		return chosen{}, false
	case n > mostGPUs:
		t.refuse(at, "devices set as '%v'; allowed: at most %d, or all", n, mostGPUs)
		return chosen{}, false
	case profile != "":
		t.refuse(at, "a count of MIG devices is not known beforehand; list the GPUs whose MIG devices are meant, or write all")
		return chosen{}, false
	}
	t.warn(at, "%v means the first GPUs by index; list them to be sure which", n)
	on := chosen{counted: true}
	for i := range int32(n) {
		on.gpus = append(on.gpus, gpuRef{index: i})
	}
	return on, true
}

func (t *translation) list(at string, items []any) (chosen, bool) {
	on, before := chosen{}, len(t.problems)
	if len(items) == 0 {
		t.refuse(at, "no devices specified; list GPUs by index or UUID, or write all")
	}
	for i, item := range items {
		where := fmt.Sprintf("%s[%d]", at, i)
		ref, ok := t.device(where, item)
		switch {
		case !ok:
		case slices.Contains(on.gpus, ref):
			t.refuse(where, "%s is listed twice", ref)
		default:
			on.gpus = append(on.gpus, ref)
		}
	}
	return on, len(t.problems) == before
}

// device reads one item of a list: an index as number or text, or a UUID.
func (t *translation) device(at string, item any) (gpuRef, bool) {
	if n, ok := item.(float64); ok && n == math.Trunc(n) && n >= 0 && n < math.MaxInt32 {
		return gpuRef{index: int32(n)}, true
	}
	text, _ := item.(string)
	switch {
	case gpuIndex.MatchString(text):
		n, err := strconv.ParseInt(text, 10, 32)
		return gpuRef{index: int32(n)}, err == nil
	case gpuUUID.MatchString(text):
		return gpuRef{uuid: "GPU-" + strings.ToLower(text[len("GPU-"):])}, true
	case migRef.MatchString(text):
		t.refuse(at, "%s is one MIG device; MIG devices are shared by profile: name the resource nvidia.com/mig-<profile> and list GPUs here", shorten(text))
	default:
		t.refuse(at, "unsupported type for device in devices list: %s; allowed: an index or a UUID, as nvidia-smi -L prints them", shorten(fmt.Sprint(item)))
	}
	return gpuRef{}, false
}

// shorten keeps a value on one short line.
func shorten(text string) string {
	const longest = 80
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// selectOf names GPUs; counted: a number stands for them, so that it is meant when the node has fewer.
func selectOf(refs []gpuRef, counted bool) *v1alpha1.GPUSelect {
	sel := &v1alpha1.GPUSelect{}
	if counted {
		sel.MustMatch = new(false)
	}
	for _, ref := range refs {
		if ref.uuid != "" {
			sel.UUIDs = append(sel.UUIDs, ref.uuid)
		} else {
			sel.Indices = append(sel.Indices, ref.index)
		}
	}
	return sel
}
