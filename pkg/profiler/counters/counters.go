// Package counters defines the files by which the kubelet plugin orders recordings of the performance counters of GPUs from the node's
// prism-collector, and by which that reports their progress. It is pure.
//
// The collector's directory on the host contains a folder for each claim, named by its UID:
//
//	order        by the plugin: an Order. While it exists, the counters are recorded, or wait for commands; its removal ends that
//	state        by the collector: a State
//	plan/run     by the collector, for prism-run; plan/stop and plan/control/ by the plugin, as for containers
//	inbox/       by prism-run: sessions and recordings, as from containers
//
// and the file busy, by the collector: a Busy. All files are written whole, by rename.
package counters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// The names in the collector's directory.
const (
	OrderFile = "order"
	StateFile = "state"
	BusyFile  = "busy"
	PlanDir   = "plan"
	InboxDir  = "inbox"
)

// MaxFile is the maximum size of each of these files, in bytes.
const MaxFile = 16 << 10

// ProcessName is the name of the process of such sessions and reports.
const ProcessName = "gpu-counters"

// GPU is a GPU whose counters are recorded.
type GPU struct {
	UUID string `json:"uuid"`
	// PCIAddress is domain:bus:device.function in hexadecimal, by which the profiler lists GPUs.
	PCIAddress string `json:"pciAddress"`
}

// Order is a recording for a claim.
type Order struct {
	// Claim is the UID of the claim; Namespace, Name and Node are names.
	Claim     string `json:"claim"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// GPUs are recorded together, into one report; at least one.
	GPUs []GPU `json:"gpus"`
	// FrequencyHz is the sampling frequency, MetricSet the alias of the set of metrics; empty: the first one that the GPUs support.
	FrequencyHz int32  `json:"frequencyHz"`
	MetricSet   string `json:"metricSet,omitempty"`
	// Manual: commands start and stop recordings. Otherwise one recording begins at once, and ends after Seconds.
	Manual  bool  `json:"manual,omitempty"`
	Seconds int64 `json:"seconds"`
	// File is the template of a report's name. StartSeconds and ReportSeconds are the timeouts of the profiler to start and to write a report;
	// 0 is the default.
	File          string `json:"file"`
	StartSeconds  int64  `json:"startSeconds,omitempty"`
	ReportSeconds int64  `json:"reportSeconds,omitempty"`
}

// Reason is the state of an order, and the reason of condition PerfCountersAvailable.
type Reason string

// The reasons. Waiting, Recording and Ended are progress; with the others the counters are not available.
const (
	// Waiting: the session waits for commands.
	Waiting Reason = "Waiting"
	// Recording: the counters are recorded.
	Recording Reason = "Recording"
	// Ended: the recording ended after its time.
	Ended Reason = "Ended"
	// InsufficientPrivilege: the driver reserves the counters for administrators.
	InsufficientPrivilege Reason = "InsufficientPrivilege"
	// PerfmonBusy: another program uses the counters of the GPU; the collector tries again until they are free.
	PerfmonBusy Reason = "PerfmonBusy"
	// Unsupported: the profiler does not support the GPU, its driver, or the metric set on it.
	Unsupported Reason = "Unsupported"
	// Failed: the profiler failed twice.
	Failed Reason = "Failed"
)

// reasons are all reasons.
var reasons = map[Reason]bool{
	Waiting: true, Recording: true, Ended: true, InsufficientPrivilege: true, PerfmonBusy: true, Unsupported: true, Failed: true,
}

// Available reports whether the counters are available.
func (r Reason) Available() bool { return r == Waiting || r == Recording || r == Ended }

// State is the progress of an order.
type State struct {
	Reason Reason `json:"reason"`
	// Message is the profiler's last output about the failure; empty without one. It is not trusted.
	Message string `json:"message,omitempty"`
	// Since is when the reason began.
	Since time.Time `json:"since"`
}

// Busy lists the GPUs whose counters another program uses.
type Busy struct {
	// GPUs are UUIDs, sorted.
	GPUs []string `json:"gpus"`
}

var (
	uidForm   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	uuidForm  = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	pciForm   = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	aliasForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

const (
	// maxGPUs is more than a node has.
	maxGPUs = 64
	// The sampling frequencies that the profiler accepts.
	minHz, maxHz = 10, 200000
	// maxSeconds bounds all recordings.
	maxSeconds = int64(24 * time.Hour / time.Second)
)

// Validate returns the first error.
func (o *Order) Validate() error {
	switch {
	case !uidForm.MatchString(o.Claim):
		return fmt.Errorf("claim must be a UID, got %q", o.Claim)
	case len(o.GPUs) == 0 || len(o.GPUs) > maxGPUs:
		return fmt.Errorf("gpus must have 1 to %d items, got %d", maxGPUs, len(o.GPUs))
	case o.FrequencyHz < minHz || o.FrequencyHz > maxHz:
		return fmt.Errorf("frequencyHz must be from %d to %d, got %d", minHz, maxHz, o.FrequencyHz)
	case o.MetricSet != "" && !aliasForm.MatchString(o.MetricSet):
		return fmt.Errorf("metricSet must be an alias, got %q", o.MetricSet)
	case o.Seconds < 1 || o.Seconds > maxSeconds:
		return fmt.Errorf("seconds must be from 1 to %d, got %d", maxSeconds, o.Seconds)
	case o.File == "":
		return errors.New("file must be set")
	}
	for _, g := range o.GPUs {
		if !uuidForm.MatchString(g.UUID) || !pciForm.MatchString(g.PCIAddress) {
			return fmt.Errorf("gpus must have a UUID and a PCI address, got %q and %q", g.UUID, g.PCIAddress)
		}
	}
	return nil
}

// Encode returns the file; the error is of Validate.
func (o *Order) Encode() ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("encoding the order of claim %s/%s: %w", o.Namespace, o.Name, err)
	}
	return json.Marshal(o)
}

// ParseOrder reads a valid order.
func ParseOrder(raw []byte) (*Order, error) {
	var o Order
	if err := decode(raw, &o); err != nil {
		return nil, fmt.Errorf("reading an order: %w", err)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("reading an order: %w", err)
	}
	return &o, nil
}

// Encode returns the file.
func (s State) Encode() ([]byte, error) { return json.Marshal(s) }

// ParseState reads a state; false if it is none.
func ParseState(raw []byte) (s State, ok bool) {
	return s, decode(raw, &s) == nil && reasons[s.Reason]
}

// Encode returns the file.
func (b Busy) Encode() ([]byte, error) { return json.Marshal(b) }

// ParseBusy reads the GPUs that are valid UUIDs; none of an unreadable file.
func ParseBusy(raw []byte) (uuids []string) {
	var b Busy
	if decode(raw, &b) != nil {
		return nil
	}
	for _, uuid := range b.GPUs[:min(len(b.GPUs), maxGPUs)] {
		if uuidForm.MatchString(uuid) {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

// decode reads one JSON value of limited size; fields of a later version are ignored.
func decode(raw []byte, into any) error {
	if len(raw) > MaxFile {
		return fmt.Errorf("must be at most %d bytes, got %d", MaxFile, len(raw))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the value")
	}
	return nil
}
