package model

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// PCIAddress is the PCI address of a GPU. Function is always 0.
type PCIAddress struct {
	Domain, Bus, Device uint32
}

// String is the form of sysfs: "0000:1b:00.0".
func (a PCIAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.0", a.Domain, a.Bus, a.Device)
}

// Short is NVML's short form: "0000:1B:00.0".
func (a PCIAddress) Short() string {
	return fmt.Sprintf("%04X:%02X:%02X.0", a.Domain, a.Bus, a.Device)
}

// Long is NVML's form with eight digits of domain: "00000000:1B:00.0".
func (a PCIAddress) Long() string {
	return fmt.Sprintf("%08X:%02X:%02X.0", a.Domain, a.Bus, a.Device)
}

// Identity are the properties of a GPU that never change.
type Identity struct {
	Ordinal  int // position in PCI order among all GPUs of the node
	UUID     string
	Serial   string
	Minor    int // of /dev/nvidia<minor>
	PCI      PCIAddress
	RootPort PCIAddress // the bridge above the GPU
	PCIRoot  string     // "pci0000:15"
	NUMA     int
}

// ComputeMode is NVML's compute mode.
type ComputeMode uint32

// The compute modes that a GPU accepts.
const (
	ComputeDefault          ComputeMode = 0
	ComputeProhibited       ComputeMode = 2
	ComputeExclusiveProcess ComputeMode = 3
)

// TimeSlice is the time-slice interval: 0 default, 1 short, 2 medium, 3 long.
type TimeSlice uint32

// MaxTimeSlice is the longest setting.
const MaxTimeSlice TimeSlice = 3

// settings are changed by users and reset by a driver reload.
type settings struct {
	compute     ComputeMode
	persistence bool
	accounting  bool
	timeSlice   TimeSlice
}

// gpu is one GPU; its node's lock guards it.
type gpu struct {
	board Board
	id    Identity
	set   settings
	mig   mig

	health Health

	persistenced bool                  // nvidia-persistenced keeps the GPU initialised
	sessions     map[*Session]struct{} // with a handle of it

	meter   meter
	at      time.Time             // until which the meters have counted
	samples map[int]ProcessSample // by pid

	clients int // processes that use the whole GPU without CUDA
	cuda    occupancy
	limits  map[uint64]MemoryLimits // of cgroups
}

// slot is a PCI slot of the simulated eight-GPU server.
type slot struct {
	root, bus uint32
	numa      int
}

var slots = []slot{
	{0x15, 0x1b, 0}, {0x37, 0x43, 0}, {0x48, 0x52, 0}, {0x59, 0x61, 0},
	{0x84, 0x9d, 1}, {0xa7, 0xc3, 1}, {0xb7, 0xd1, 1}, {0xc7, 0xdf, 1},
}

// newIdentity is the identity of the GPU in a slot. Replacements counts the GPUs that were in the slot before.
func newIdentity(node string, ordinal, minor, replacements int, board Board) Identity {
	place := slots[ordinal%len(slots)]
	domain := uint32(ordinal / len(slots))
	seed := fmt.Appendf(nil, "%s/%d/%s", node, ordinal, board.ID)
	if replacements > 0 {
		seed = fmt.Appendf(seed, "/%d", replacements)
	}
	sum := sha256.Sum256(seed)
	return Identity{
		Ordinal:  ordinal,
		UUID:     "GPU-" + uuidOf(sum[:16]),
		Serial:   fmt.Sprintf("16%011d", binary.LittleEndian.Uint32(sum[16:])),
		Minor:    minor,
		PCI:      PCIAddress{Domain: domain, Bus: place.bus},
		RootPort: PCIAddress{Domain: domain, Bus: place.root, Device: 1},
		PCIRoot:  fmt.Sprintf("pci%04x:%02x", domain, place.root),
		NUMA:     place.numa,
	}
}

// uuidOf formats 16 bytes as a version 4 UUID.
func uuidOf(b []byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
