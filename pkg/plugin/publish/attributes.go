package publish

import (
	"cmp"
	"regexp"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Attribute names in the driver's own domain. Every device carries all of them, except the MIG devices that are made for a claim (see
// dynamicMIG), the perfmon devices and the monitor, and no value is ever empty: an expression with a missing key is an error, and that error ends the scheduling
// of the pod on every node.
const (
	AttrType                  = gpu.AttributeType
	AttrUUID                  = "uuid"
	AttrParentUUID            = "parentUUID"
	AttrIndex                 = "index"
	AttrMinor                 = "minor"
	AttrProductName           = "productName"
	AttrBrand                 = "brand"
	AttrArchitecture          = "architecture"
	AttrAddressingMode        = "addressingMode"
	AttrCUDAComputeCapability = "cudaComputeCapability"
	AttrDriverVersion         = "driverVersion"
	AttrCUDADriverVersion     = "cudaDriverVersion"
	AttrProfile               = gpu.AttributeProfile
	AttrShareName             = gpu.AttributeShareName
	AttrReplicas              = gpu.AttributeReplicas
	AttrMemoryEnforcement     = "memoryEnforcement"
)

// Standard attributes, which other drivers' devices carry too: claims align GPUs with network cards through them. They are only there if
// the machine reports the value.
const (
	AttrPCIeRoot = "resource.kubernetes.io/pcieRoot"
	AttrPCIBusID = "resource.kubernetes.io/pciBusID"
	AttrNUMANode = "resource.kubernetes.io/numaNode"
)

// unknown is the value of an attribute if the driver does not report it.
const unknown = "unknown"

// Values of AttrMemoryEnforcement besides gpu.NotApplicable: how a claim is kept to the memory that it was allocated.
const (
	// enforcementHardware: there is no more memory in the device, which is exclusive to the claim.
	enforcementHardware = "hardware"
	// enforcementCooperative: MPS limits the memory of its clients, which can evade that on purpose.
	enforcementCooperative = "cooperative"
)

// common lists the attributes that a selector can use for every device of a GPU.
func common(d gpu.Device, driver gpu.Driver) Attributes {
	g, shares := d.Parent(), d.Shares()
	set := Attributes{
		AttrType:                  text(string(d.Type())),
		AttrUUID:                  text(d.ID()),
		AttrParentUUID:            text(string(g.UUID)),
		AttrIndex:                 number(g.Index),
		AttrMinor:                 number(g.Minor),
		AttrProductName:           text(g.Product.Name),
		AttrBrand:                 text(g.Product.Brand),
		AttrArchitecture:          text(g.Product.Architecture),
		AttrAddressingMode:        text(g.Product.AddressingMode),
		AttrCUDAComputeCapability: version(g.Product.ComputeCapability),
		AttrDriverVersion:         version(driver.Version),
		AttrCUDADriverVersion:     version(driver.CUDAVersion),
		AttrProfile:               text(cmp.Or(d.ProfileName(), gpu.NotApplicable)),
		AttrShareName:             text(cmp.Or(shares.Name, gpu.NotApplicable)),
		AttrReplicas:              number(shares.Count),
		AttrMemoryEnforcement:     text(gpu.NotApplicable),
	}
	addPlace(set, g.PCI)
	return set
}

var (
	pcieRootPattern = regexp.MustCompile(`^pci[0-9a-f]{4,}:[0-9a-f]{2}$`)
	pciBusIDPattern = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// addPlace adds the standard attributes that are known. A value of another form than the standard's would match nothing of
// other drivers, so it counts as not known.
func addPlace(set Attributes, pci gpu.PCI) {
	if pcieRootPattern.MatchString(pci.Root) {
		set[AttrPCIeRoot] = text(pci.Root)
	}
	if pciBusIDPattern.MatchString(pci.BusID) {
		set[AttrPCIBusID] = text(pci.BusID)
	}
	if pci.NUMANode >= 0 {
		set[AttrNUMANode] = number(pci.NUMANode)
	}
}
