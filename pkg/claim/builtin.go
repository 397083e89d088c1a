package claim

import "slices"

// Families are all families of this package. Steps are made in their order.
func Families() []DevicePlanner {
	return []DevicePlanner{whole{}, timeSlice{}, mpsShare{}, mig{}, monitor{}}
}

// Extensions returns this package's extensions, for a node without exporter and profiler, with others in place of those of their kinds.
// They plan in their order.
func Extensions(nodeName string, others ...PlanExtension) []PlanExtension {
	all := []PlanExtension{MPSExtension{}, MetricsExtension{NodeName: nodeName}, ProfileExtension{NodeName: nodeName}}
	for i, e := range all {
		if at := slices.IndexFunc(others, func(other PlanExtension) bool { return other.Kind() == e.Kind() }); at >= 0 {
			all[i] = others[at]
		}
	}
	return all
}
