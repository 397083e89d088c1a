package claim

import "slices"

// Families are all families of this package. Steps are made in their order.
func Families() []DevicePlanner {
	return []DevicePlanner{whole{}, timeSlice{}, mpsShare{}, mig{}, monitor{}, perfmon{}}
}

// Extensions returns one extension of each kind of this package, for a node without exporter and profiler. An extension in others replaces
// the extension of the same kind. They plan in their order.
func Extensions(nodeName string, others ...PlanExtension) []PlanExtension {
	all := []PlanExtension{MPSExtension{}, MetricsExtension{NodeName: nodeName}, ProfileExtension{NodeName: nodeName}}
	for i, e := range all {
		if at := slices.IndexFunc(others, func(other PlanExtension) bool { return other.Kind() == e.Kind() }); at >= 0 {
			all[i] = others[at]
		}
	}
	return all
}
