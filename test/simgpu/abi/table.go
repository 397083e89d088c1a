package abi

// The branches in Since are the first in which Debian's real libraries (418, 450, 470, 535, 550, 555) and the headers of CUDA 11.1 to 13.4
// contain a symbol.
var table = concat(sessionSymbols, systemSymbols, lookupSymbols, identitySymbols, stateSymbols, migSymbols, instanceSymbols, eventSymbols, fabricSymbols, absentFeatures, hiddenSymbols, cudaSymbols, memoryLimitSymbols,
	sensorSymbols, counterSymbols, gpmSymbols)

func concat(parts ...[]Symbol) []Symbol {
	var all []Symbol
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// device returns a row for a function whose first parameter is a GPU.
func device(name string, since int, answer answer, params ...Param) Symbol {
	return Symbol{
		Name: name, Since: since, answer: answer, locate: ofDevice,
		Params: append([]Param{pointer("device")}, params...),
	}
}

var initParams = []Param{cstring("library"), cstring("minors"), cstring("capabilities"), outU64("session")}

var sessionSymbols = []Symbol{
	{Name: "nvmlInit", Place: Written, Params: initParams, answer: begin},
	{Name: "nvmlInit_v2", Place: Written, Params: initParams, answer: begin},
	{Name: "nvmlInitWithFlags", Place: Written, Params: initParams, answer: begin},
	{Name: "nvmlShutdown", Place: Written, Params: []Param{u32("left")}, answer: end},
	{Name: "nvmlErrorString", Place: Written},
	{Name: "nvmlInternalGetExportTable", Place: Written},
}

var systemSymbols = []Symbol{
	{Name: "nvmlSystemGetDriverVersion", Params: []Param{text("version")}, answer: driverVersion},
	{Name: "nvmlSystemGetNVMLVersion", Place: Written, Params: []Param{text("version")}, answer: nvmlVersion},
	{Name: "nvmlSystemGetCudaDriverVersion", Params: []Param{outU32("version")}, answer: cudaVersion},
	{Name: "nvmlSystemGetCudaDriverVersion_v2", Params: []Param{outU32("version")}, answer: cudaVersion},
	{Name: "nvmlSystemGetProcessName", Params: []Param{u32("pid"), text("name")}, answer: processName},
}

var lookupSymbols = []Symbol{
	{Name: "nvmlDeviceGetCount", Params: []Param{outU32("count")}, answer: count, locate: ofNone},
	{Name: "nvmlDeviceGetCount_v2", Params: []Param{outU32("count")}, answer: count, locate: ofNone},
	{Name: "nvmlDeviceGetHandleByIndex", Params: []Param{u32("index"), outU64("device")}, answer: byIndex, locate: ofIndex},
	{Name: "nvmlDeviceGetHandleByIndex_v2", Params: []Param{u32("index"), outU64("device")}, answer: byIndex, locate: ofIndex},
	{Name: "nvmlDeviceGetHandleByUUID", Params: []Param{cstring("uuid"), outU64("device")}, answer: byUUID, locate: ofUUID},
	{Name: "nvmlDeviceGetHandleBySerial", Params: []Param{cstring("serial"), outU64("device")}, answer: bySerial, locate: ofNone},
	{Name: "nvmlDeviceGetHandleByPciBusId", Params: []Param{cstring("address"), outU64("device")}, answer: byPCI, locate: ofPCI},
	{Name: "nvmlDeviceGetHandleByPciBusId_v2", Params: []Param{cstring("address"), outU64("device")}, answer: byPCI, locate: ofPCI},
}

var identitySymbols = []Symbol{
	device("nvmlDeviceGetUUID", 0, uuid, text("uuid")),
	device("nvmlDeviceGetName", 0, name, text("name")),
	device("nvmlDeviceGetSerial", 0, serial, text("serial")),
	device("nvmlDeviceGetIndex", 0, index, outU32("index")),
	device("nvmlDeviceGetMinorNumber", 0, minor, outU32("minor")),
	device("nvmlDeviceGetModuleId", 535, module, outU32("module")),
	device("nvmlDeviceGetBrand", 0, brand, outU32("brand")),
	device("nvmlDeviceGetArchitecture", 450, architecture, outU32("architecture")),
	device("nvmlDeviceGetCudaComputeCapability", 0, capability, outU32("major"), outU32("minor")),
	device("nvmlDeviceGetNumGpuCores", 510, cores, outU32("cores")),
	device("nvmlDeviceGetMemoryBusWidth", 510, busWidth, outU32("bits")),
	device("nvmlDeviceGetPciInfo", 0, pciInfo, out("pci", pciInfoSize)),
	device("nvmlDeviceGetPciInfo_v3", 0, pciInfo, out("pci", pciInfoSize)),
	device("nvmlDeviceGetVbiosVersion", 0, vbios, text("version")),
	device("nvmlDeviceGetBusType", 510, busType, outU32("type")),
	device("nvmlDeviceGetMaxPcieLinkGeneration", 0, linkGeneration, outU32("generation")),
	device("nvmlDeviceGetCurrPcieLinkGeneration", 0, linkGeneration, outU32("generation")),
	device("nvmlDeviceGetMaxPcieLinkWidth", 0, linkWidth, outU32("width")),
	device("nvmlDeviceGetCurrPcieLinkWidth", 0, linkWidth, outU32("width")),
	device("nvmlDeviceGetMemoryAffinity", 450, memoryAffinity, u32("words"), out("set", 8), u32("scope")),
}

var stateSymbols = []Symbol{
	device("nvmlDeviceGetMemoryInfo", 0, memory, out("memory", memorySize)),
	device("nvmlDeviceGetMemoryInfo_v2", 510, memoryV2, versioned("memory")),
	device("nvmlDeviceGetComputeMode", 0, computeMode, outU32("mode")),
	device("nvmlDeviceSetComputeMode", 0, setComputeMode, u32("mode")),
	device("nvmlDeviceGetPersistenceMode", 0, persistence, outU32("mode")),
	device("nvmlDeviceSetPersistenceMode", 0, setPersistence, u32("mode")),
	device("nvmlDeviceGetAccountingMode", 0, accounting, outU32("mode")),
	device("nvmlDeviceSetAccountingMode", 0, setAccounting, u32("mode")),
	device("nvmlDeviceGetPowerManagementMode", 0, enabled, outU32("mode")),
	device("nvmlDeviceGetEccMode", 0, eccMode, outU32("current"), outU32("pending")),
	device("nvmlDeviceGetDisplayActive", 0, disabled, outU32("active")),
	device("nvmlDeviceGetDisplayMode", 0, disabled, outU32("mode")),
	device("nvmlDeviceGetComputeRunningProcesses", 0, computeProcesses, processes(processV1Size)),
	device("nvmlDeviceGetComputeRunningProcesses_v2", 450, computeProcesses, processes(processSize)),
	device("nvmlDeviceGetComputeRunningProcesses_v3", 510, computeProcesses, processes(processSize)),
	device("nvmlDeviceGetGraphicsRunningProcesses", 0, noProcesses, processes(processV1Size)),
	device("nvmlDeviceGetGraphicsRunningProcesses_v2", 450, noProcesses, processes(processSize)),
	device("nvmlDeviceGetGraphicsRunningProcesses_v3", 510, noProcesses, processes(processSize)),
	device("nvmlDeviceGetMPSComputeRunningProcesses", 470, mpsProcesses, processes(processV1Size)),
	device("nvmlDeviceGetMPSComputeRunningProcesses_v2", 470, mpsProcesses, processes(processSize)),
	device("nvmlDeviceGetMPSComputeRunningProcesses_v3", 510, mpsProcesses, processes(processSize)),
}

// Functions of GPU instances and MIG devices.
var migSymbols = []Symbol{
	device("nvmlDeviceGetMaxMigDeviceCount", 450, maxMIGDevices, outU32("count")),
	device("nvmlDeviceGetMigMode", 450, migMode, outU32("current"), outU32("pending")),
	device("nvmlDeviceSetMigMode", 450, setMIGMode, u32("mode"), outU32("activation")),
	device("nvmlDeviceGetGpuInstanceProfileInfo", 450, profileInfo, u32("profile"), out("info", profileInfoSize)),
	device("nvmlDeviceGetGpuInstanceProfileInfoV", 470, profileInfoV, u32("profile"), versioned("info")),
	device("nvmlDeviceGetGpuInstanceProfileInfoByIdV", 580, profileInfoByIDV, u32("id"), versioned("info")),
	device("nvmlDeviceGetGpuInstancePossiblePlacements", 450, possiblePlacements, u32("id"), placements()),
	device("nvmlDeviceGetGpuInstancePossiblePlacements_v2", 470, possiblePlacements, u32("id"), placements()),
	device("nvmlDeviceGetGpuInstanceRemainingCapacity", 450, remainingCapacity, u32("id"), outU32("count")),
	device("nvmlDeviceCreateGpuInstance", 450, createGPUInstance, u32("id"), outU64("instance")),
	device("nvmlDeviceCreateGpuInstanceWithPlacement", 470, createGPUInstanceAt, u32("id"), in("placement", placementSize), outU64("instance")),
	device("nvmlDeviceGetGpuInstances", 450, gpuInstances, u32("id"), out("instances", handlesSize), outU32("count")),
	device("nvmlDeviceGetGpuInstanceById", 450, gpuInstanceByID, u32("id"), outU64("instance")),
	device("nvmlDeviceGetMigDeviceHandleByIndex", 450, migDeviceByIndex, u32("index"), outU64("mig")),
	device("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", 450, parent, outU64("parent")),
	device("nvmlDeviceIsMigDeviceHandle", 450, isMIGDevice, outU32("isMig")),
	device("nvmlDeviceGetGpuInstanceId", 450, gpuInstance, outU32("id")),
	device("nvmlDeviceGetComputeInstanceId", 450, computeInstance, outU32("id")),
	device("nvmlDeviceGetAttributes", 450, attributes, out("attributes", attributesSize)),
	device("nvmlDeviceGetAttributes_v2", 450, attributes, out("attributes", attributesSize)),
}

// Functions on a GPU instance or a compute instance: the handle identifies the GPU too.
var instanceSymbols = []Symbol{
	device("nvmlGpuInstanceGetInfo", 450, gpuInstanceInfo, out("info", gpuInstanceSize)),
	device("nvmlGpuInstanceDestroy", 450, destroyGPUInstance),
	device("nvmlGpuInstanceGetComputeInstanceProfileInfo", 450, computeProfileInfo, u32("profile"), u32("engines"), out("info", computeInfoSize)),
	device("nvmlGpuInstanceGetComputeInstanceProfileInfoV", 470, computeProfileInfoV, u32("profile"), u32("engines"), versioned("info")),
	device("nvmlGpuInstanceCreateComputeInstance", 450, createComputeInstance, u32("id"), outU64("instance")),
	device("nvmlGpuInstanceCreateComputeInstanceWithPlacement", 525, createComputeInstanceAt, u32("id"), in("placement", placementSize), outU64("instance")),
	device("nvmlGpuInstanceGetComputeInstancePossiblePlacements", 525, computePlacements, u32("id"), placements()),
	device("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", 450, remainingComputeCapacity, u32("id"), outU32("count")),
	device("nvmlGpuInstanceGetComputeInstances", 450, computeInstances, u32("id"), out("instances", handlesSize), outU32("count")),
	device("nvmlGpuInstanceGetComputeInstanceById", 450, computeInstanceByID, u32("id"), outU64("instance")),
	device("nvmlComputeInstanceGetInfo", 450, computeInstanceInfoV1, out("info", computeInstanceV1Size)),
	device("nvmlComputeInstanceGetInfo_v2", 470, computeInstanceInfo, out("info", computeInstanceSize)),
	device("nvmlComputeInstanceDestroy", 450, destroyComputeInstance),
}

var eventSymbols = []Symbol{
	{Name: "nvmlEventSetCreate", Params: []Param{outU64("set")}, answer: newEventSet, locate: ofNone},
	{Name: "nvmlEventSetFree", Params: []Param{pointer("set")}, answer: freeEventSet, locate: ofNone},
	{Name: "nvmlEventSetWait", Params: []Param{pointer("set"), out("data", eventV1Size), u32("milliseconds")}, answer: waitEventV1, locate: ofNone},
	{Name: "nvmlEventSetWait_v2", Since: 450, Params: []Param{pointer("set"), out("data", eventSize), u32("milliseconds")}, answer: waitEvent, locate: ofNone},
	device("nvmlDeviceGetSupportedEventTypes", 0, eventTypes, outU64("types")),
	device("nvmlDeviceRegisterEvents", 0, watchEvents, u64("types"), pointer("set")),
}

// Functions of the fabric of NVSwitch boards.
var fabricSymbols = []Symbol{
	device("nvmlDeviceGetGpuFabricInfo", 525, fabricInfo, out("info", fabricInfoSize)),
	device("nvmlDeviceGetGpuFabricInfoV", 550, fabricInfoV, versioned("info")),
}

// Features that no board of the catalog supports: the functions exist and
// return NotSupported, as on real hardware without the feature.
var absentFeatures = []Symbol{
	device("nvmlDeviceGetFanSpeed", 0, notSupported, outU32("percent")),
	device("nvmlDeviceGetNumaNodeId", 550, notSupported, outU32("node")),
	device("nvmlDeviceGetAddressingMode", 580, notSupported, versioned("mode")),
	device("nvmlDeviceGetPlatformInfo", 565, notSupported, versioned("info")),
	device("nvmlDeviceGetVirtualizationMode", 0, disabled, outU32("mode")),
}

// Functions that nvidia-smi calls through the export table of the library.
var hiddenSymbols = []Symbol{
	{Name: "exportTableDevice", Place: Hidden, Params: []Param{u32("index"), outU64("device")}, answer: byIndex, locate: ofIndex},
	hidden("exportTableSetTimeSlice", setTimeSlice, u32("slice")),
	hidden("exportTableGetTimeSlice", timeSlice, outU32("slice")),
	hidden("exportTableReset", resetGPU),
}

func hidden(name string, answer answer, params ...Param) Symbol {
	symbol := device(name, 0, answer, params...)
	symbol.Place = Hidden
	return symbol
}
