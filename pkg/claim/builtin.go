package claim

import "slices"

// Families are all families of this package. Steps are made in their order.
func Families() []Family { return []Family{whole{}, timeSlice{}, mpsShare{}, mig{}, monitor{}} }

// Extensions returns this package's extensions, for a node without exporter and profiler, with others in place of those of their kinds.
// They plan in their order.
func Extensions(nodeName string, others ...Extension) []Extension {
	all := []Extension{MPSExtension{}, MetricsExtension{NodeName: nodeName}, ProfileExtension{NodeName: nodeName}}
	for i, e := range all {
		if at := slices.IndexFunc(others, func(other Extension) bool { return other.Kind() == e.Kind() }); at >= 0 {
			all[i] = others[at]
		}
	}
	return all
}
