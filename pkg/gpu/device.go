package gpu

// DeviceName names a device inside its pool: a DNS label that stays the same over reboots and slot moves.
type DeviceName string

// DeviceType is the value of the `type` attribute: the family of a device. The type of each family is in the family's file.
type DeviceType string

// Attributes of published devices that the controller selects by. Their names are in the driver's own domain.
const (
	AttributeType      = "type"
	AttributeProfile   = "profile"
	AttributeShareName = "shareName"
	AttributeReplicas  = "replicas"
)

// NotApplicable is the value of an attribute without a meaning for a device.
const NotApplicable = "none"

// PoolDevice names a device on a node: pool and device, as an allocation does.
type PoolDevice struct {
	Pool   string
	Device DeviceName
}

// Device is one way of using a GPU that can be allocated to a claim. Each family is one type in a file of its own: Whole, TimeSliced,
// MPSShare, MIGDevice, Monitor and Perfmon. Behavior that depends on the family is a method, so that a family which leaves one out does not
// compile. Values are comparable.
type Device interface {
	// Name is the device's name inside its pool. It begins with the name of the Whole of its GPU, but for a device of the whole node.
	Name() DeviceName
	// Type is the value of its `type` attribute.
	Type() DeviceType
	// Parent is the physical GPU behind it; a GPU without UUID if all GPUs of the node are behind it.
	Parent() *GPU
	// ID is the value of its `uuid` attribute, known before the device exists. It never contains spaces.
	ID() string
	// ProfileName is the name of its MIG profile, "1g.10gb"; empty for other devices.
	ProfileName() string
	// Capacity is how much of the GPU its programs see. Zero means that the driver does not report it.
	Capacity() Capacity
	// Shares says how many claims can hold the device at once.
	Shares() Shares
	// Use is how a claim uses its GPU if it was allocated the device, or one share of it.
	Use(share bool) Use
}

// Shares says how many claims can hold a device at once.
type Shares struct {
	// Count is 1 for a device that is exclusive to a claim.
	Count int
	// Name is the name of the shares in the node's configuration; empty without a name.
	Name string
	// Consumable: a claim gets a share of the device and consumes its capacities, even if there is only one share.
	Consumable bool
}

// Shared reports whether a claim gets a share of the device with the consumed capacities, and not the device.
func (s Shares) Shared() bool { return s.Count > 1 || s.Consumable }

// exclusive are the shares of a device for one claim.
var exclusive = Shares{Count: 1}
