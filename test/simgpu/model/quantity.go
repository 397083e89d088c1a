package model

import "fmt"

// Quantity is a rate or a level of a GPU or GPU instance, or a kind of event.
type Quantity int

// The quantities. Quantities of work are in percent of the GPU or GPU instance.
const (
	QuantityGraphics Quantity = iota
	QuantitySM
	QuantityOccupancy
	QuantityTensor
	QuantityDRAM
	QuantityFP64
	QuantityFP32
	QuantityFP16
	QuantityInteger
	QuantityEncoder
	QuantityDecoder
	QuantityJPEG
	QuantityOFA
	QuantityMemory            // MiB, without the memory of CUDA contexts
	QuantityPCIeTx            // MiB/s
	QuantityPCIeRx            // MiB/s
	QuantityNVLinkTx          // MiB/s over all links
	QuantityNVLinkRx          // MiB/s over all links
	QuantityPower             // watts
	QuantityTemperature       // degrees Celsius
	QuantityMemoryTemperature // degrees Celsius
	QuantitySMClock           // MHz
	QuantityMemoryClock       // MHz
	QuantityVideoClock        // MHz
	QuantityThrottlePower     // 1 while clocks are lowered for that reason, else 0
	QuantityThrottleThermal
	QuantityThrottleHWThermal
	QuantityThrottlePowerBrake
	QuantityThrottleSyncBoost
	QuantityThrottleBoard
	QuantityThrottleLowUtilization
	QuantityThrottleReliability
	QuantityECCCorrected // events: that many happen
	QuantityECCUncorrected
	QuantityRetiredCorrected
	QuantityRetiredUncorrected
	QuantityRowsCorrectable
	QuantityRowsUncorrectable
	QuantityRowsFailed
	QuantityPCIeReplays
	QuantityNVLinkFlitErrors
	QuantityNVLinkDataErrors
	QuantityNVLinkReplays
	QuantityNVLinkRecoveries

	quantityCount
)

// Quantities holds one value of each quantity.
type Quantities [quantityCount]float64

// quantity describes a Quantity.
type quantity struct {
	name     string
	most     float64 // 0: any
	instance bool    // a GPU instance has it too
	event    bool    // it happens, rather than lasts
	level    bool    // its sum over time means nothing
	kept     bool    // the board keeps the count over a reload of the driver
}

var quantities = [quantityCount]quantity{
	QuantityGraphics:  {name: "graphics", most: 100, instance: true},
	QuantitySM:        {name: "sm", most: 100, instance: true},
	QuantityOccupancy: {name: "occupancy", most: 100, instance: true},
	QuantityTensor:    {name: "tensor", most: 100, instance: true},
	QuantityDRAM:      {name: "dram", most: 100, instance: true},
	QuantityFP64:      {name: "fp64", most: 100, instance: true},
	QuantityFP32:      {name: "fp32", most: 100, instance: true},
	QuantityFP16:      {name: "fp16", most: 100, instance: true},
	QuantityInteger:   {name: "integer", most: 100, instance: true},
	QuantityEncoder:   {name: "encoder", most: 100, instance: true},
	QuantityDecoder:   {name: "decoder", most: 100, instance: true},
	QuantityJPEG:      {name: "jpeg", most: 100, instance: true},
	QuantityOFA:       {name: "ofa", most: 100, instance: true},
	QuantityMemory:    {name: "memory", instance: true, level: true},
	QuantityPCIeTx:    {name: "pcie-tx", instance: true},
	QuantityPCIeRx:    {name: "pcie-rx", instance: true},
	QuantityNVLinkTx:  {name: "nvlink-tx"},
	QuantityNVLinkRx:  {name: "nvlink-rx"},

	QuantityPower:             {name: "power"},
	QuantityTemperature:       {name: "temperature", level: true},
	QuantityMemoryTemperature: {name: "memory-temperature", level: true},
	QuantitySMClock:           {name: "sm-clock", level: true},
	QuantityMemoryClock:       {name: "memory-clock", level: true},
	QuantityVideoClock:        {name: "video-clock", level: true},

	QuantityThrottlePower:          {name: "throttle-power", most: 1},
	QuantityThrottleThermal:        {name: "throttle-thermal", most: 1},
	QuantityThrottleHWThermal:      {name: "throttle-hw-thermal", most: 1},
	QuantityThrottlePowerBrake:     {name: "throttle-power-brake", most: 1},
	QuantityThrottleSyncBoost:      {name: "throttle-sync-boost", most: 1},
	QuantityThrottleBoard:          {name: "throttle-board", most: 1},
	QuantityThrottleLowUtilization: {name: "throttle-low-utilization", most: 1},
	QuantityThrottleReliability:    {name: "throttle-reliability", most: 1},

	QuantityECCCorrected:       {name: "ecc-corrected", event: true, kept: true},
	QuantityECCUncorrected:     {name: "ecc-uncorrected", event: true, kept: true},
	QuantityRetiredCorrected:   {name: "retired-corrected", event: true, kept: true},
	QuantityRetiredUncorrected: {name: "retired-uncorrected", event: true, kept: true},
	QuantityRowsCorrectable:    {name: "rows-correctable", event: true, kept: true},
	QuantityRowsUncorrectable:  {name: "rows-uncorrectable", event: true, kept: true},
	QuantityRowsFailed:         {name: "rows-failed", event: true, kept: true},
	QuantityPCIeReplays:        {name: "pcie-replays", event: true},
	QuantityNVLinkFlitErrors:   {name: "nvlink-flit-errors", event: true},
	QuantityNVLinkDataErrors:   {name: "nvlink-data-errors", event: true},
	QuantityNVLinkReplays:      {name: "nvlink-replays", event: true},
	QuantityNVLinkRecoveries:   {name: "nvlink-recoveries", event: true},
}

// String is the name on the command line, such as "pcie-tx".
func (q Quantity) String() string { return quantities[q].name }

// ParseQuantity finds a quantity by its name; the error lists all names.
func ParseQuantity(name string) (Quantity, error) {
	for q := range quantities {
		if quantities[q].name == name {
			return Quantity(q), nil
		}
	}
	return 0, fmt.Errorf("reading quantity %q: supported names: %s", name, QuantityNames())
}

// QuantityNames lists the names of all quantities.
func QuantityNames() []string {
	names := make([]string, quantityCount)
	for q := range quantities {
		names[q] = quantities[q].name
	}
	return names
}

// Map returns the values that are not 0, by name.
func (v Quantities) Map() map[string]float64 {
	named := map[string]float64{}
	for q, value := range v {
		if value != 0 {
			named[quantities[q].name] = value
		}
	}
	return named
}
