package model

import (
	"fmt"
	"sort"
	"strings"
)

// Architecture is NVML's architecture number.
type Architecture uint32

// The architectures of the boards in the catalog.
const (
	Turing    Architecture = 6
	Ampere    Architecture = 7
	Ada       Architecture = 8
	Hopper    Architecture = 9
	Blackwell Architecture = 10
)

// Brand is NVML's brand number.
type Brand uint32

// BrandNVIDIA is the brand of every current data-centre board.
const BrandNVIDIA Brand = 14

// Board is one GPU product. It is immutable data.
type Board struct {
	ID      string // the name on the command line, such as "h100-80"
	Product Product
	Compute Compute
	Memory  Memory
	Engines Engines
	Power   Power
	MIG     MIGSupport
}

// Product is the product information of a board.
type Product struct {
	Name        string
	Brand       Brand
	PCIDevice   uint32 // device and vendor id as NVML packs them, 0xDDDDVVVV
	PCISubsys   uint32
	MinDriver   int    // first driver branch that knows the board
	VBIOS       string // as "nvidia-smi -q" prints it
	LinkGen     int    // PCIe generation
	PerfClockHz uint64 // SM clock under load
}

// Compute are the compute resources of a board.
type Compute struct {
	Architecture           Architecture
	Major, Minor           int // compute capability
	Multiprocessors        int
	CoresPerMultiprocessor int
}

// Memory is in MiB, as the real boards report it.
type Memory struct {
	TotalMiB    uint64
	ReservedMiB uint64 // by the driver; inside TotalMiB
	BusWidth    int    // bits
}

// Engines counts the fixed-function units of a whole GPU.
type Engines struct {
	Copy, Decoder, Encoder, JPEG, OFA int
}

// Power is in milliwatts, temperature in degrees Celsius.
type Power struct {
	Limit, Idle     uint32
	IdleTemperature uint32
}

// MIGSupport describes the Multi-Instance GPU support of a board.
type MIGSupport struct {
	MaxDevices      int  // 0: the board has no MIG
	NeedsReset      bool // a mode change waits for a GPU reset (Ampere)
	Multiprocessors int  // of the profile that spans the GPU: not always all
	Profiles        []MIGProfile
}

// Capable reports whether the board has MIG at all.
func (m MIGSupport) Capable() bool { return m.MaxDevices > 0 }

var boards = []Board{
	{
		ID:      "t4",
		Product: Product{Name: "Tesla T4", Brand: BrandNVIDIA, PCIDevice: 0x1EB810DE, PCISubsys: 0x12A210DE, MinDriver: 410, VBIOS: "90.04.A7.00.01", LinkGen: 3, PerfClockHz: 1590e6},
		Compute: Compute{Turing, 7, 5, 40, 64},
		Memory:  Memory{15360, 433, 256},
		Engines: Engines{Copy: 3, Decoder: 2, Encoder: 1},
		Power:   Power{70000, 9500, 34},
	},
	{
		ID:      "a30",
		Product: Product{Name: "NVIDIA A30", Brand: BrandNVIDIA, PCIDevice: 0x20B710DE, PCISubsys: 0x153210DE, MinDriver: 460, VBIOS: "92.00.66.00.13", LinkGen: 4, PerfClockHz: 1440e6},
		Compute: Compute{Ampere, 8, 0, 56, 64},
		Memory:  Memory{24576, 512, 3072},
		Engines: Engines{Copy: 4, Decoder: 4, JPEG: 1, OFA: 1},
		Power:   Power{165000, 28000, 31},
		MIG:     MIGSupport{MaxDevices: 4, NeedsReset: true, Multiprocessors: 56, Profiles: a30Profiles},
	},
	{
		ID:      "a100-40",
		Product: Product{Name: "NVIDIA A100-SXM4-40GB", Brand: BrandNVIDIA, PCIDevice: 0x20B010DE, PCISubsys: 0x134F10DE, MinDriver: 450, VBIOS: "92.00.45.00.03", LinkGen: 4, PerfClockHz: 1410e6},
		Compute: Compute{Ampere, 8, 0, 108, 64},
		Memory:  Memory{40960, 624, 5120},
		Engines: Engines{Copy: 7, Decoder: 5, JPEG: 1, OFA: 1},
		Power:   Power{400000, 52000, 30},
		MIG:     MIGSupport{MaxDevices: 7, NeedsReset: true, Multiprocessors: 98, Profiles: a100x40Profiles},
	},
	{
		ID:      "a100-80",
		Product: Product{Name: "NVIDIA A100-SXM4-80GB", Brand: BrandNVIDIA, PCIDevice: 0x20B210DE, PCISubsys: 0x147F10DE, MinDriver: 450, VBIOS: "92.00.A0.00.05", LinkGen: 4, PerfClockHz: 1410e6},
		Compute: Compute{Ampere, 8, 0, 108, 64},
		Memory:  Memory{81920, 869, 5120},
		Engines: Engines{Copy: 7, Decoder: 5, JPEG: 1, OFA: 1},
		Power:   Power{400000, 61000, 32},
		MIG:     MIGSupport{MaxDevices: 7, NeedsReset: true, Multiprocessors: 98, Profiles: a100x80Profiles},
	},
	{
		ID:      "l40s",
		Product: Product{Name: "NVIDIA L40S", Brand: BrandNVIDIA, PCIDevice: 0x26B910DE, PCISubsys: 0x185110DE, MinDriver: 525, VBIOS: "95.02.66.00.02", LinkGen: 4, PerfClockHz: 2520e6},
		Compute: Compute{Ada, 8, 9, 142, 128},
		Memory:  Memory{46068, 593, 384},
		Engines: Engines{Copy: 2, Decoder: 3, Encoder: 3, JPEG: 4, OFA: 1},
		Power:   Power{350000, 33000, 30},
	},
	{
		ID:      "h100-80",
		Product: Product{Name: "NVIDIA H100 80GB HBM3", Brand: BrandNVIDIA, PCIDevice: 0x233010DE, PCISubsys: 0x16C110DE, MinDriver: 525, VBIOS: "96.00.74.00.01", LinkGen: 5, PerfClockHz: 1980e6},
		Compute: Compute{Hopper, 9, 0, 132, 128},
		Memory:  Memory{81559, 551, 5120},
		Engines: Engines{Copy: 8, Decoder: 7, JPEG: 7, OFA: 1},
		Power:   Power{700000, 69000, 29},
		MIG:     MIGSupport{MaxDevices: 7, Multiprocessors: 132, Profiles: h100x80Profiles},
	},
	{
		ID:      "h200-141",
		Product: Product{Name: "NVIDIA H200", Brand: BrandNVIDIA, PCIDevice: 0x233510DE, PCISubsys: 0x18BE10DE, MinDriver: 535, VBIOS: "96.00.BC.00.01", LinkGen: 5, PerfClockHz: 1980e6},
		Compute: Compute{Hopper, 9, 0, 132, 128},
		Memory:  Memory{143771, 618, 6144},
		Engines: Engines{Copy: 8, Decoder: 7, JPEG: 7, OFA: 1},
		Power:   Power{700000, 76000, 30},
		MIG:     MIGSupport{MaxDevices: 7, Multiprocessors: 132, Profiles: h200x141Profiles},
	},
	{
		ID:      "b200-180",
		Product: Product{Name: "NVIDIA B200", Brand: BrandNVIDIA, PCIDevice: 0x290110DE, PCISubsys: 0x199910DE, MinDriver: 570, VBIOS: "97.00.88.00.0F", LinkGen: 5, PerfClockHz: 1965e6},
		Compute: Compute{Blackwell, 10, 0, 148, 128},
		Memory:  Memory{183359, 719, 8192},
		Engines: Engines{Copy: 16, Decoder: 7, JPEG: 7, OFA: 1},
		Power:   Power{1000000, 140000, 31},
		MIG:     MIGSupport{MaxDevices: 7, Multiprocessors: 148, Profiles: b200x180Profiles},
	},
}

// BoardByID finds a board of the catalog; the error lists the known names.
func BoardByID(id string) (Board, error) {
	for _, board := range boards {
		if board.ID == id {
			return board, nil
		}
	}
	return Board{}, fmt.Errorf("finding board %q: the catalog has %s", id, strings.Join(BoardIDs(), ", "))
}

// BoardIDs lists the catalog in alphabetical order.
func BoardIDs() []string {
	ids := make([]string, len(boards))
	for i, board := range boards {
		ids[i] = board.ID
	}
	sort.Strings(ids)
	return ids
}
