package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// shown is the number of values that a detail names.
const shown = 3

// detailOf is the detail of an outcome, without names of nodes: equal nodes share a row.
func (r *run) detailOf(o *outcome, w *wish) string {
	switch {
	case o.detail != "":
		return o.detail
	case o.cause == Selector || o.cause == NoDevices:
		return r.selectorDetail(&o.selector)
	case o.cause == Capacity:
		return capacityDetail(o.lacks, w)
	case o.cause == InUse && len(o.taints) > 0:
		return o.held + "; free devices have the taint " + taintDetail(o.taints)
	case o.cause == InUse:
		return o.held
	case o.cause == Taint:
		return taintDetail(o.taints)
	default:
		return ""
	}
}

func taintDetail(taints map[string]bool) string {
	all := slices.Sorted(maps.Keys(taints))
	if len(all) > shown {
		return strings.Join(all[:shown], "; ") + fmt.Sprintf("; %d more", len(all)-shown)
	}
	return strings.Join(all, "; ")
}

// selectorDetail names the part that excludes all devices, and the values that the devices have.
func (r *run) selectorDetail(x *exclusion) string {
	if x.part == nil || len(x.left) == 0 {
		return ""
	}
	driver := x.left[0].driver
	text := x.part.short(driver)
	var facts []string
	for _, name := range x.part.reads.sortedAttributes() {
		facts = append(facts, values(x.left, name, func(d device) (string, bool) {
			a, found := attribute(d, name)
			if found && a.StringValue != nil && clusterview.Identity(name) {
				return "another", true // each node has its own, and equal nodes share a row
			}
			return attributeText(a), found
		}))
	}
	for _, name := range x.part.reads.sortedCapacities() {
		facts = append(facts, values(x.left, name, func(d device) (string, bool) {
			c, found := capacityOf(d, name)
			return c.Value.String(), found
		}))
	}
	if len(facts) == 0 {
		return text
	}
	text += ": " + strings.Join(facts, ", ")
	text += unquoted(x)
	if products := products(x.left); len(products) > 0 && !x.part.reads.attributes[resourceapi.QualifiedName(driver+"/productName")] {
		text += " (" + list(products, shown) + ")"
	}
	return text
}

// unquoted warns of a number that is compared with a text, which is never equal.
func unquoted(x *exclusion) string {
	for _, name := range x.part.reads.sortedAttributes() {
		a, found := attribute(x.left[0], name)
		if found && a.IntValue != nil && strings.ContainsAny(x.part.short(x.left[0].driver), `"'`) {
			return ", a number: compare it without quotes"
		}
	}
	return ""
}

// values lists the values of a name on devices: "profile is none".
func values(devices []device, name resourceapi.QualifiedName, value func(device) (string, bool)) string {
	seen := map[string]bool{}
	for _, d := range devices {
		text, found := value(d)
		if !found {
			text = "missing"
		}
		seen[text] = true
	}
	_, id, _ := strings.Cut(string(name), "/")
	return id + " is " + list(slices.SortedFunc(maps.Keys(seen), natural), shown)
}

func products(devices []device) []string {
	seen := map[string]bool{}
	for _, d := range devices {
		if a, found := d.Attributes["productName"]; found && a.StringValue != nil {
			seen[*a.StringValue] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// natural orders texts that begin with numbers by the numbers.
func natural(a, b string) int {
	numberA, numberB := leading(a), leading(b)
	if numberA != numberB {
		return numberA - numberB
	}
	return strings.Compare(a, b)
}

func leading(text string) int {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(text[:end])
	return n
}

// capacityDetail names the requested capacity that no device has.
func capacityDetail(l lack, w *wish) string {
	requested, found := w.request.Capacity, false
	amount := ""
	if requested != nil {
		if q, is := requested.Requests[l.name]; is {
			amount, found = q.String(), true
		}
	}
	switch {
	case !l.exists:
		return misspelt(l)
	case !found:
		return fmt.Sprintf("%s: the devices share it, and have %s", l.name, l.most.Value.String())
	default:
		return fmt.Sprintf("%s %s is requested: a device has at most %s", amount, l.name, most(l.most))
	}
}

// most is the most that a request can get of a capacity.
func most(c resourceapi.DeviceCapacity) string {
	if c.RequestPolicy != nil && c.RequestPolicy.ValidRange != nil {
		if limit := c.RequestPolicy.ValidRange.Max; limit != nil && limit.Cmp(c.Value) < 0 {
			return limit.String()
		}
	}
	return c.Value.String()
}

// misspelt names the capacities that the devices have.
func misspelt(l lack) string {
	domain, id, _ := strings.Cut(string(l.name), "/")
	if id == "" {
		domain, id = "", string(l.name)
	}
	for _, has := range slices.Sorted(maps.Keys(l.names)) {
		_, hasID, qualified := strings.Cut(string(has), "/")
		if !qualified {
			hasID = string(has)
		}
		if hasID == id {
			return fmt.Sprintf("capacity %s does not exist: the devices publish it as %s, and the scheduler compares names literally", l.name, has)
		}
	}
	var names []string
	for has := range l.names {
		// A misspelt name of a MIG profile is only compared with names of profiles.
		ofDomain := domain == "" || strings.HasPrefix(string(has), domain+"/") || !strings.Contains(string(has), "/")
		if ofDomain && isProfileCapacity(id) == isProfileCapacity(baseName(has)) {
			names = append(names, string(has))
		}
	}
	slices.SortFunc(names, natural)
	return fmt.Sprintf("capacity %s does not exist: the devices have %s", l.name, list(names, 2*shown))
}

func baseName(name resourceapi.QualifiedName) string {
	return string(name)[strings.LastIndexByte(string(name), '/')+1:]
}

// isProfileCapacity reports whether a capacity is named after a MIG profile: "p1g10gb".
func isProfileCapacity(id string) bool {
	return len(id) > 2 && id[0] == 'p' && id[1] >= '0' && id[1] <= '9'
}

// held says in which way the devices that a request can get are in use.
func held(in *pooled) string {
	types, profiles := map[string]bool{}, map[string]bool{}
	for _, place := range in.able {
		d := in.ledger.devices[place].device
		types[stringAttribute(d, "type")] = true
		profiles[stringAttribute(d, "profile")] = true
	}
	if len(types) != 1 {
		return heldDevices
	}
	switch only := slices.Collect(maps.Keys(types))[0]; only {
	case "gpu":
		return "every matching GPU is in use"
	case "mig":
		if len(profiles) == 1 {
			return "every placement of " + slices.Collect(maps.Keys(profiles))[0] + " is blocked"
		}
		return "every placement of a matching MIG device is blocked"
	case "mps":
		return "no GPU has room for the MPS share"
	case "timeslice":
		return "no GPU has room for another time-sliced share"
	default:
		return heldDevices
	}
}

func stringAttribute(d device, id string) string {
	if a, found := attribute(d, resourceapi.QualifiedName(d.driver+"/"+id)); found && a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

// plural returns "1 node" or "2 nodes".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
