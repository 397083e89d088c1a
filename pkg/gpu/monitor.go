package gpu

// TypeMonitor is visibility of the node's GPUs for admin-access claims, whichever claims use them.
const TypeMonitor DeviceType = "monitor"

// Monitor is the right to see all GPUs of a node, which other claims may be using. It is for admin-access claims only, and takes no
// counters: the scheduler allocates no device of a partitioned GPU with admin access while the GPU's counters are taken
// (kubernetes/kubernetes#140729).
type Monitor struct{}

// Name is "monitor".
func (Monitor) Name() DeviceName { return DeviceName(TypeMonitor) }

// Type is TypeMonitor.
func (Monitor) Type() DeviceType { return TypeMonitor }

// Parent is a GPU without UUID.
func (Monitor) Parent() *GPU { return &GPU{} }

// Pool names the pool of the additional devices of a node: "<node>/monitor".
func (Monitor) Pool(node string) string { return node + "/" + string(TypeMonitor) }

// ID is empty: a node has one monitor.
func (Monitor) ID() string { return "" }

// ProfileName is empty.
func (Monitor) ProfileName() string { return "" }

// Capacity is nothing: it takes nothing of any GPU.
func (Monitor) Capacity() Capacity { return Capacity{} }

// Shares is one.
func (Monitor) Shares() Shares { return exclusive }

// Use excludes nothing.
func (d Monitor) Use(share bool) Use { return Use{Type: TypeMonitor, Device: d.Name(), Shared: share} }
