// Package roles names the ClusterRoles of the chart by which users of kubectl prism get rights beyond their own namespaces.
package roles

// The ClusterRoles, as the chart names them after the name of its objects.
const (
	// View reads ResourceSlices, DeviceClasses, DeviceTaintRules and nodes.
	View = "<fullname>-gpus-view"
	// ViewAll also reads claims, pods and Events of all namespaces. A Role of the same name in the namespace of the release allows the proxy
	// of the API server to the exporters.
	ViewAll = "<fullname>-gpus-view-all"
)
