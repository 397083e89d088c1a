package publish

import (
	"regexp"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Attribute names in the driver's own domain. Every device carries all of them, but for the MIG devices that are made for a claim (see
// lean) and the monitor, and none is ever empty: an expression that meets a missing key is an error, and that error ends the scheduling of
// the pod on every node.
const (
	AttrType                  = "type"
	AttrUUID                  = "uuid"
	AttrParentUUID            = "parentUUID"
	AttrIndex                 = "index"
	AttrMinor                 = "minor"
	AttrProductName           = "productName"
	AttrBrand                 = "brand"
	AttrArchitecture          = "architecture"
	AttrCUDAComputeCapability = "cudaComputeCapability"
	AttrDriverVersion         = "driverVersion"
	AttrCUDADriverVersion     = "cudaDriverVersion"
	AttrProfile               = "profile"
	AttrShareName             = "shareName"
	AttrReplicas              = "replicas"
	AttrMemoryEnforcement     = "memoryEnforcement"
)

// Standard attributes, which other drivers' devices carry too: claims align GPUs with network cards through them. They are
// only there where the machine tells the value.
const (
	AttrPCIeRoot = "resource.kubernetes.io/pcieRoot"
	AttrPCIBusID = "resource.kubernetes.io/pciBusID"
	AttrNUMANode = "resource.kubernetes.io/numaNode"
)

const (
	// notApplicable stands where an attribute has no meaning for a device.
	notApplicable = "none"
	// unknown stands where the driver does not tell.
	unknown = "unknown"
)

type attributeSet = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// attributes lists what a selector can ask about one device of the driver with that name.
func attributes(d gpu.Device, driver gpu.Driver, driverName string) attributeSet {
	g := d.Parent()
	set := attributeSet{
		AttrType:                  text(string(d.Type())),
		AttrUUID:                  text(string(g.UUID)),
		AttrParentUUID:            text(string(g.UUID)),
		AttrIndex:                 number(g.Index),
		AttrMinor:                 number(g.Minor),
		AttrProductName:           text(g.Product.Name),
		AttrBrand:                 text(g.Product.Brand),
		AttrArchitecture:          text(g.Product.Architecture),
		AttrCUDAComputeCapability: version(g.Product.ComputeCapability),
		AttrDriverVersion:         version(driver.Version),
		AttrCUDADriverVersion:     version(driver.CUDAVersion),
		AttrProfile:               text(notApplicable),
		AttrShareName:             text(notApplicable),
		AttrReplicas:              number(1),
		AttrMemoryEnforcement:     text(notApplicable),
	}
	switch d := d.(type) {
	case gpu.MIGDevice:
		set[AttrUUID], set[AttrProfile] = text(d.ID()), text(d.Profile.Name)
		set[AttrReplicas] = number(max(d.Replicas, 1))
	case gpu.TimeSliced:
		set[AttrReplicas] = number(d.Replicas)
		if d.ShareName != "" {
			set[AttrShareName] = text(d.ShareName)
		}
	case gpu.Whole, gpu.Monitor:
	}
	if d, ok := d.(gpu.MIGDevice); ok && d.Static == nil {
		set = lean(set, driverName)
	}
	addPlace(set, g.PCI)
	return set
}

// dynamicMIG are the attributes of a MIG device that is made for a claim. A node has some 200 of them, and the scheduler copies the attributes
// of each into a map for each expression that it evaluates: the ninth of a domain makes that map grow, and the fifteenth once more. Such a
// device has no UUID before it is made, it is for one claim, and its GPU is selected by parentUUID or the PCI address.
var dynamicMIG = []resourceapi.QualifiedName{
	AttrType, AttrProfile, AttrParentUUID, AttrProductName, AttrArchitecture, AttrCUDAComputeCapability, AttrDriverVersion, AttrCUDADriverVersion,
}

// nvidiaDriver is the name of NVIDIA's driver, whose MIG devices also have AttrBrand. Claims that were written for it may select by that.
const nvidiaDriver = "gpu.nvidia.com"

// lean leaves of a set what a MIG device carries that is made for a claim.
func lean(set attributeSet, driverName string) attributeSet {
	kept := make(attributeSet, len(dynamicMIG)+1)
	for _, name := range dynamicMIG {
		kept[name] = set[name]
	}
	if driverName == nvidiaDriver {
		kept[AttrBrand] = set[AttrBrand]
	}
	return kept
}

var (
	pcieRootPattern = regexp.MustCompile(`^pci[0-9a-f]{4,}:[0-9a-f]{2}$`)
	pciBusIDPattern = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// addPlace adds the standard attributes that are known. A value of another form than the standard's would match nothing of
// other drivers, so it counts as not known.
func addPlace(set attributeSet, pci gpu.PCI) {
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
