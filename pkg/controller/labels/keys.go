package labels

import "time"

// Keys of the labels.
const (
	keyCount   = "nvidia.com/gpu.count"
	keyProduct = "nvidia.com/gpu.product"
	// keyMemory is the memory of a GPU in MiB.
	keyMemory       = "nvidia.com/gpu.memory"
	keyFamily       = "nvidia.com/gpu.family"
	keyComputeMajor = "nvidia.com/gpu.compute.major"
	keyComputeMinor = "nvidia.com/gpu.compute.minor"
	keyMIGCapable   = "nvidia.com/mig.capable"
	keyDriverMajor  = "nvidia.com/cuda.driver-version.major"
	keyDriverMinor  = "nvidia.com/cuda.driver-version.minor"
	keyRuntimeFull  = "nvidia.com/cuda.runtime-version.full"
	keyRuntimeMajor = "nvidia.com/cuda.runtime-version.major"
	keyRuntimeMinor = "nvidia.com/cuda.runtime-version.minor"
	keyPresent      = "nvidia.com/gpu.present"
	keyStrategy     = "nvidia.com/mig.strategy"
	keyReplicas     = "nvidia.com/gpu.replicas"
	keySharing      = "nvidia.com/gpu.sharing-strategy"
)

// keys are all labels that the controller may set. The admission policy of the chart allows no others.
var keys = []string{
	keyCount, keyProduct, keyMemory, keyFamily, keyComputeMajor, keyComputeMinor, keyMIGCapable, keyDriverMajor, keyDriverMinor,
	keyRuntimeFull, keyRuntimeMajor, keyRuntimeMinor, keyPresent, keyStrategy, keyReplicas, keySharing,
}

const (
	// absence is the time without a GPU in the ResourceSlices of a node after which its labels are removed: an update of the NVIDIA driver or
	// of the plugin takes less.
	absence = 10 * time.Minute
	// changeDelay is the time between a change and the labels that follow from it: a plugin publishes the pools of a node one after the other.
	changeDelay = 5 * time.Second
	// writeInterval is the shortest time between two writes, for all nodes together.
	writeInterval = 100 * time.Millisecond
)

// Options say which labels nodes get, and for which driver.
type Options struct {
	// DriverName is the DRA driver's name.
	DriverName string
	// Present adds gpu.present. The charts of NVIDIA start their programs on nodes with that label.
	Present bool
	// DevicePlugin adds the labels about sharing and MIG that describe the resources of NVIDIA's device plugin.
	DevicePlugin bool
}

// Manager is the field manager of the labels of a driver.
func Manager(driver string) string { return "prism-node-labels." + driver }

// Keys returns the keys of all labels that the controller may set.
func Keys() []string { return append([]string(nil), keys...) }

// BindingName is the name of the ClusterRoleBinding that lets the controller write labels, and of its ClusterRole. The argument is the name
// of the ClusterRole that owns the objects of the controller.
func BindingName(ownerRole string) string { return ownerRole + "-nodelabels" }
