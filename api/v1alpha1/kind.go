package v1alpha1

const (
	// Group is the API group. It does not follow the driver's name.
	Group = "gpu.prism.dev"
	// Version is the only version of the group.
	Version = "v1alpha1"
	// APIVersion is the apiVersion of every object of this package.
	APIVersion = Group + "/" + Version
)

// The kinds of this package.
const (
	KindGPUConfig        = "GPUConfig"
	KindProfilerConfig   = "ProfilerConfig"
	KindGPUMetricsConfig = "GPUMetricsConfig"
	KindNodeConfig       = "NodeConfig"
)

// Config is opaque device configuration: a *GPUConfig, *ProfilerConfig, *GPUMetricsConfig or one of a Decoder's further kinds.
type Config interface {
	// Kind is one of the Kind constants, even if the object sets none.
	Kind() string
	// Default sets every unset field that has a default value, in place.
	Default()
	// Validate returns nil or a *Problems with all errors. Unset fields are valid
	// unless another field requires them.
	Validate() error
}

// Kind returns KindGPUConfig.
func (*GPUConfig) Kind() string { return KindGPUConfig }

// Kind returns KindProfilerConfig.
func (*ProfilerConfig) Kind() string { return KindProfilerConfig }

// Kind returns KindGPUMetricsConfig.
func (*GPUMetricsConfig) Kind() string { return KindGPUMetricsConfig }

// Kind returns KindNodeConfig.
func (*NodeConfig) Kind() string { return KindNodeConfig }
