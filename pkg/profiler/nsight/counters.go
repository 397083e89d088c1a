package nsight

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The switches that record performance counters of GPUs. Versions before 2024 have only the old name of the first one.
const (
	devicesSwitch    = "--gpu-metrics-devices"
	oldDevicesSwitch = "--gpu-metrics-device"
	setSwitch        = "--gpu-metrics-set"
	frequencySwitch  = "--gpu-metrics-frequency"
)

// CounterSwitches are the performance counters to record.
type CounterSwitches struct {
	// Devices are the indices of the GPUs in the list of the version; at least one.
	Devices []int
	// FrequencyHz is the sampling frequency.
	FrequencyHz int32
	// MetricSet is the argument for a set of metrics; empty: the first one that the GPUs support.
	MetricSet string
}

// Counters returns the switches that record performance counters of GPUs and nothing else, until the program exits. manual: commands start
// and stop recordings. The error is a *Lacking or an *Untested.
//
// Devices are always named: without a GPU, 2022.4.2 accepts "all" and records nothing.
func Counters(o CounterSwitches, tool Tool, manual bool) (Commands, error) {
	profile := &command{features: tool.Switches}
	a := &arguments{version: tool.Version, run: profile, start: profile}
	if manual {
		if len(tool.Launch) == 0 || len(tool.Start) == 0 {
			return Commands{}, &Untested{tool.Version}
		}
		a.run, a.start = &command{name: "nsys launch", features: tool.Launch}, &command{name: "nsys start", features: tool.Start}
	} else {
		a.add(profile, "--kill", "none", "")
	}
	a.add(a.run, "--wait", "primary", "")
	a.add(a.run, traceSwitch, "none", "")
	a.add(a.start, "--sample", "none", "")
	a.add(a.start, "--cpuctxsw", "none", "")
	indices := make([]string, len(o.Devices))
	for i, index := range o.Devices {
		indices[i] = strconv.Itoa(index)
	}
	a.add(a.start, a.start.devices(), strings.Join(indices, ","), "")
	a.add(a.start, frequencySwitch, strconv.FormatInt(int64(o.FrequencyHz), 10), "")
	if o.MetricSet != "" {
		a.add(a.start, setSwitch, o.MetricSet, "")
	}
	commands := Commands{Run: a.run.all}
	if manual {
		commands.Start = a.start.all
	}
	return commands, a.err
}

// devices returns the name of the switch for GPUs.
func (c *command) devices() string {
	if !c.has(devicesSwitch) && c.has(oldDevicesSwitch) {
		return oldDevicesSwitch
	}
	return devicesSwitch
}

// DevicesHelp and SetsHelp return the arguments of nsys with which the version lists GPUs and sets of metrics.
func DevicesHelp(tool Tool) []string {
	return []string{"profile", (&command{features: tool.Switches}).devices() + "=help"}
}

// SetsHelp is described at DevicesHelp.
func SetsHelp() []string { return []string{"profile", setSwitch + "=help"} }

// MetricsDevice is a GPU in the list of a version.
type MetricsDevice struct {
	// Index selects it; -1 if it has none.
	Index int
	// PCIAddress is its address in the form of PCIAddress.
	PCIAddress string
	// Supported: the version records its counters. Note is the text about it, such as the reason otherwise; may be empty.
	Supported bool
	Note      string
}

// The syntax of the list: GPUs, with the section of those that are not supported at the end.
var (
	deviceLine      = regexp.MustCompile(`^\s*(?:([0-9]{1,3}): )?.*PCI\[([0-9A-Fa-f:.]+)\](.*)$`)
	unsupportedLine = regexp.MustCompile(`GPUs are (?:not )?supported`)
	// otherLine is a value that is not a GPU, or the reference to the documentation.
	otherLine = regexp.MustCompile(`^\s*(?:all|none|cuda-visible): |^\s*See the user guide`)
)

// maxDevices limits the result for a list.
const maxDevices = 128

// MetricsDevices returns the GPUs in the output of DevicesHelp, and its other lines. A reason is behind or below a GPU.
func MetricsDevices(output string) (devices []MetricsDevice, rest string) {
	supported := true
	var others []string
	last := -1 // the GPU above the line
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		found := deviceLine.FindStringSubmatch(line)
		address := ""
		if found != nil {
			address = PCIAddress(found[2])
		}
		switch {
		case address != "" && len(devices) < maxDevices:
			d := MetricsDevice{Index: -1, PCIAddress: address, Supported: supported, Note: strings.Trim(found[3], " \t:-")}
			if index, err := strconv.Atoi(found[1]); err == nil {
				d.Index = index
			}
			devices, last = append(devices, d), len(devices)
			continue
		case unsupportedLine.MatchString(line):
			supported, last = false, -1
		case strings.TrimSpace(line) == "" || otherLine.MatchString(line):
			last = -1
		case last >= 0:
			devices[last].Note = strings.TrimSpace(devices[last].Note + " " + strings.TrimSpace(line))
			continue
		}
		others = append(others, line)
	}
	return devices, strings.Join(others, "\n")
}

// pciForm matches a PCI address; the domain has up to 8 digits.
var pciForm = regexp.MustCompile(`^([0-9a-f]{1,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// PCIAddress returns a PCI address in one form: lower case, with a domain of 8 digits. It returns "" for other text.
func PCIAddress(text string) string {
	found := pciForm.FindStringSubmatch(strings.ToLower(text))
	if found == nil {
		return ""
	}
	return strings.Repeat("0", 8-len(found[1])) + found[1] + ":" + found[2]
}

// setLine is a set of metrics with its alias: "[0] [tu10x]  General", where only the index selects it, or "tu10x  : General".
var setLine = regexp.MustCompile(`^\s*(?:\[([0-9]{1,3})\]\s*\[([a-z0-9_-]+)\]|([a-z0-9_-]+)\s*:)\s`)

// MetricSet returns the argument that selects a set of metrics by its alias in the output of SetsHelp; otherwise the known aliases.
func MetricSet(output, alias string) (argument string, known []string) {
	for line := range strings.Lines(output) {
		found := setLine.FindStringSubmatch(line)
		switch {
		case found == nil || len(known) == maxDevices:
			continue
		case found[2] == alias:
			return found[1], nil
		case found[3] == alias:
			return alias, nil
		}
		known = append(known, found[2]+found[3])
	}
	return "", slices.DeleteFunc(known, func(name string) bool { return name == "file" || name == "help" })
}
