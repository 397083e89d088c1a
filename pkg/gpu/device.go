package gpu

// DeviceName names a device inside its pool: a DNS label that stays the same over reboots and slot moves.
type DeviceName string

// DeviceType is the value of the `type` attribute: one way of offering a GPU.
type DeviceType string

// The device types this version publishes.
const (
	// TypeGPU is a whole GPU for one claim.
	TypeGPU DeviceType = "gpu"
	// TypeMIG is a GPU instance for one claim.
	TypeMIG DeviceType = "mig"
	// TypeTimeSlice is a GPU for several claims at once, in turns.
	TypeTimeSlice DeviceType = "timeslice"
	// TypeMonitor is visibility of the node's GPUs for admin-access claims, whoever uses them.
	TypeMonitor DeviceType = "monitor"
)

// PoolDevice names a device on a node: pool and device, as an allocation does.
type PoolDevice struct {
	Pool   string
	Device DeviceName
}

// Device is one way of using a GPU that a claim can be given. The set of kinds is closed: Whole, TimeSliced,
// MIGDevice and Monitor. A switch over them names each: the linter refuses one that leaves a kind out.
//
//sumtype:decl
type Device interface {
	// Name is the device's name inside its pool.
	Name() DeviceName
	// Type is the value of its `type` attribute.
	Type() DeviceType
	// Parent is the physical GPU behind it; a GPU without UUID for a Monitor, behind which are all GPUs of the node.
	Parent() *GPU

	sealed()
}

// Whole is a GPU offered as it is, to one claim at a time.
type Whole struct{ GPU *GPU }

// Monitor is the right to see all GPUs of a node, which others may be using. It is given to admin-access claims only, and needs no
// counters: the scheduler gives no device of a partitioned GPU with admin access while the GPU's counters are taken
// (kubernetes/kubernetes#140729).
type Monitor struct{}

// Name is "gpu-<id>".
func (d Whole) Name() DeviceName { return DeviceName("gpu-" + d.GPU.ID) }

// Type is TypeGPU.
func (Whole) Type() DeviceType { return TypeGPU }

// Parent is the GPU itself.
func (d Whole) Parent() *GPU { return d.GPU }

func (Whole) sealed() {}

// Name is "monitor".
func (Monitor) Name() DeviceName { return DeviceName(TypeMonitor) }

// Type is TypeMonitor.
func (Monitor) Type() DeviceType { return TypeMonitor }

// Parent is a GPU without UUID.
func (Monitor) Parent() *GPU { return &GPU{} }

// Pool names the pool of the monitor of a node: "<node>/monitor".
func (Monitor) Pool(node string) string { return node + "/" + string(TypeMonitor) }

func (Monitor) sealed() {}
