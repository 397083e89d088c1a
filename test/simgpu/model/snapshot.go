package model

// Snapshot is the state of a node; it marshals to JSON.
type Snapshot struct {
	Name   string         `json:"name"`
	Driver DriverSnapshot `json:"driver"`
	GPUs   []GPUSnapshot  `json:"gpus"`
	Faults []Fault        `json:"faults"`
	Calls  []ProcessCalls `json:"calls"`
}

// DriverSnapshot is the driver of a Snapshot.
type DriverSnapshot struct {
	Version DriverVersion `json:"version"`
	CUDA    int           `json:"cuda"` // 13000 for 13.0
	Loaded  bool          `json:"loaded"`
}

// GPUSnapshot is one GPU of a Snapshot.
type GPUSnapshot struct {
	Ordinal         int         `json:"ordinal"`
	Board           string      `json:"board"`
	Name            string      `json:"name"`
	UUID            string      `json:"uuid"`
	Serial          string      `json:"serial"`
	Minor           int         `json:"minor"`
	PCI             string      `json:"pci"`
	PCIeRoot        string      `json:"pcieRoot"`
	NUMA            int         `json:"numa"`
	ComputeMode     ComputeMode `json:"computeMode"`
	Persistence     bool        `json:"persistence"`
	Persistenced    bool        `json:"persistenced"` // nvidia-persistenced keeps the GPU initialised
	Accounting      bool        `json:"accounting"`
	TimeSlice       TimeSlice   `json:"timeSlice"`
	Lost            bool        `json:"lost"`
	Unlisted        bool        `json:"unlisted,omitempty"` // new sessions do not list it
	Health          Health      `json:"health"`
	MIG             bool        `json:"mig"`
	MIGPending      bool        `json:"migPending"`
	Clients         int         `json:"clients"`
	ProtectedMemory uint64      `json:"protectedMemory,omitempty"` // bytes; the soft limits of all cgroups
	MemoryUsed      uint64      `json:"memoryUsed"`                // bytes, without memory that the driver reserves

	Load       *LoadSnapshot       `json:"load,omitempty"`      // of Snapshot only
	Processes  []Process           `json:"processes,omitempty"` // with a CUDA context
	MIGDevices []MIGDeviceSnapshot `json:"migDevices,omitempty"`
}

// LoadSnapshot is the activity of a GPU or GPU instance, by the name of the Quantity; zeros are left out.
type LoadSnapshot struct {
	Now    map[string]float64 `json:"now,omitempty"`
	Totals map[string]float64 `json:"totals,omitempty"` // since the driver was loaded; levels times seconds, or the number of events
	Script *Script            `json:"script,omitempty"`
}

func (m *meter) snapshot(levels Quantities) *LoadSnapshot {
	sums := m.sums
	for q, row := range quantities {
		if row.level {
			sums[q] = 0
		}
	}
	shown := &LoadSnapshot{Now: levels.Map(), Totals: sums.Map()}
	if len(m.script.Steps) > 0 {
		script := m.script
		shown.Script = &script
	}
	return shown
}

// Snapshot returns the state of the node.
func (n *Node) Snapshot() Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.driver
	s := Snapshot{
		Name:   n.spec.Name,
		Driver: DriverSnapshot{Version: d.version, CUDA: d.version.CUDA(), Loaded: d.loaded},
		Faults: n.Faults.List(),
		Calls:  n.Calls.List(),
		GPUs:   n.gpuSnapshots(true),
	}
	return s
}

// GPUs returns the state of the GPUs alone, without their activity, which is cheaper.
func (n *Node) GPUs() []GPUSnapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gpuSnapshots(false)
}

func (n *Node) gpuSnapshots(load bool) (gpus []GPUSnapshot) {
	for _, g := range n.gpus {
		if load && n.driver.loaded {
			g.advance(n.now())
		}
		gpus = append(gpus, GPUSnapshot{
			Ordinal: g.id.Ordinal, Board: g.board.ID, Name: g.board.Product.Name,
			UUID: g.id.UUID, Serial: g.id.Serial, Minor: g.id.Minor,
			PCI: g.id.PCI.String(), PCIeRoot: g.id.PCIRoot, NUMA: g.id.NUMA,
			ComputeMode: g.set.compute, Persistence: g.set.persistence, Persistenced: g.persistenced, Accounting: g.set.accounting, TimeSlice: g.set.timeSlice,
			Lost: n.Faults.Lost(g.id.Ordinal), Unlisted: n.Faults.Unlisted(g.id.Ordinal), Health: g.health, MIG: g.mig.current, MIGPending: g.mig.pending, Clients: g.clients + len(g.cuda.contexts),
			ProtectedMemory: g.protectedMemory(), Processes: g.allProcesses(), MIGDevices: g.migSnapshot(load),
			MemoryUsed: g.usedMemory() + g.scriptedMemory(n.now()),
		})
		if load {
			levels, _ := g.levels(g.at)
			gpus[len(gpus)-1].Load = g.meter.snapshot(levels)
		}
	}
	return gpus
}
