package model

// Sensors are the parts of a board that NVML measures.
type Sensors struct {
	IdleClock, MemoryClock, VideoClock uint32 // MHz; the memory clock is for a GPU under load
	IdleMemoryClock                    uint32
	IdleState                          uint32 // performance state without load
	MemorySensor                       bool   // only HBM has a temperature sensor
	BAR1MiB                            uint64
	Links                              int // NVLinks
	LinkVersion                        uint32
	LinkMBps                           uint32
	Fabric                             bool // an NVSwitch board whose GPUs register with the fabric: from Hopper on
	PartNumber, InfoROM                string
}

var sensors = map[string]Sensors{
	"t4": {
		IdleClock: 300, MemoryClock: 5001, VideoClock: 1470, IdleMemoryClock: 405, IdleState: 8, BAR1MiB: 256,
		PartNumber: "900-2G183-0000-001", InfoROM: "G183.0200.00.02",
	},
	"a30": {
		IdleClock: 210, MemoryClock: 1215, VideoClock: 1305, IdleMemoryClock: 1215, MemorySensor: true, BAR1MiB: 32768,
		Links: 4, LinkVersion: 3, LinkMBps: 25000, PartNumber: "900-21001-0040-000", InfoROM: "1001.0205.00.03",
	},
	"a100-40": {
		IdleClock: 210, MemoryClock: 1215, VideoClock: 1290, IdleMemoryClock: 1215, MemorySensor: true, BAR1MiB: 65536,
		Links: 12, LinkVersion: 3, LinkMBps: 25000, PartNumber: "692-2G506-0200-002", InfoROM: "G506.0200.00.04",
	},
	"a100-80": {
		IdleClock: 210, MemoryClock: 1593, VideoClock: 1290, IdleMemoryClock: 1593, MemorySensor: true, BAR1MiB: 131072,
		Links: 12, LinkVersion: 3, LinkMBps: 25000, PartNumber: "692-2G506-0210-002", InfoROM: "G506.0210.00.04",
	},
	"l40s": {
		IdleClock: 210, MemoryClock: 9001, VideoClock: 1965, IdleMemoryClock: 405, IdleState: 8, BAR1MiB: 65536,
		PartNumber: "900-2G133-0080-000", InfoROM: "G133.0242.00.03",
	},
	"h100-80": {
		IdleClock: 345, MemoryClock: 2619, VideoClock: 1545, IdleMemoryClock: 2619, MemorySensor: true, BAR1MiB: 131072,
		Links: 18, LinkVersion: 4, LinkMBps: 26562, Fabric: true, PartNumber: "692-2G520-0200-000", InfoROM: "G520.0200.00.05",
	},
	"h200-141": {
		IdleClock: 345, MemoryClock: 3201, VideoClock: 1545, IdleMemoryClock: 3201, MemorySensor: true, BAR1MiB: 262144,
		Links: 18, LinkVersion: 4, LinkMBps: 26562, Fabric: true, PartNumber: "692-2G520-0280-000", InfoROM: "G520.0280.00.05",
	},
	"b200-180": {
		IdleClock: 120, MemoryClock: 3996, VideoClock: 1522, IdleMemoryClock: 3996, MemorySensor: true, BAR1MiB: 262144,
		Links: 18, LinkVersion: 5, LinkMBps: 53125, Fabric: true, PartNumber: "692-2G525-0220-002", InfoROM: "G525.0220.00.03",
	},
}

// Sensors returns the sensors of the board.
func (b Board) Sensors() Sensors { return sensors[b.ID] }

// HasGPM reports whether the board has GPU performance monitoring.
func (b Board) HasGPM() bool { return b.Compute.Architecture >= Hopper }

// HasFabric reports whether the board's GPUs register with the fabric of an NVSwitch board.
func (b Board) HasFabric() bool { return b.Sensors().Fabric }

// RetiresPages reports whether the board retires pages of memory; later ones remap rows.
func (b Board) RetiresPages() bool { return b.Compute.Architecture < Ampere }
