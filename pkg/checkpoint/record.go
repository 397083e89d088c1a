package checkpoint

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// State is the progress of a claim's work.
type State string

// The states of a record.
const (
	// Intent: hardware effects will be made, or some were; after a crash they are undone.
	Intent State = "intent"
	// Done: the claim is prepared, and the record is its answer.
	Done State = "done"
	// Releasing: undoing has begun. A record that stays in this state has a pending cleanup.
	Releasing State = "releasing"
)

// Record is all that is known of one claim's work; undoing needs neither the API server nor the claim.
type Record struct {
	// Claim is the claim of the record.
	Claim Claim `json:"claim"`
	// BootID identifies the boot during which the hardware effects were made; a reboot removes them.
	BootID string `json:"bootID"`
	// Writer is the version of the plugin that last wrote it.
	Writer string `json:"writer"`
	// State is the progress of the work.
	State State `json:"state"`
	// Results are the claim's allocation results of this driver, in the claim's order.
	Results []Result `json:"results"`
	// Steps are the hardware effects in the order of their creation.
	Steps []Step `json:"steps,omitempty"`
	// Extensions contains the data of extensions for the whole claim.
	Extensions Extensions `json:"extensions,omitempty"`
	// CDI names the CDI devices in the answer to the kubelet.
	CDI CDI `json:"cdi"`
	// PendingCleanup is the time and the reason of failed attempts to undo; nil as long as none has failed.
	PendingCleanup *PendingCleanup `json:"debt,omitempty"`

	// newSchema is the schema of the file if this version does not know it, otherwise 0.
	newSchema int
	// former is set if it was read from the directory of an earlier driver name.
	former  bool
	unknown unknownKeys
}

// Claim identifies a ResourceClaim.
type Claim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	unknown unknownKeys
}

// Result is one allocation result: the device that is allocated to a request.
type Result struct {
	// Request is "<request>" or "<request>/<subrequest>".
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// ShareID distinguishes the allocations of one shareable device; empty for other devices.
	ShareID string `json:"shareID,omitempty"`
	// Admin: the result has admin access and owns nothing.
	Admin bool `json:"admin,omitempty"`
	// Type is the kind of device.
	Type gpu.DeviceType `json:"type"`
	// GPUUUID is the physical GPU, PCIBusID its PCI address at that time; empty for a monitor device, which shows all GPUs of the node.
	// Earlier versions recorded one per GPU.
	GPUUUID  gpu.UUID `json:"gpuUUID"`
	PCIBusID string   `json:"pciBusID"`
	// MIG is set for MIG devices.
	MIG *MIG `json:"mig,omitempty"`
	// Share is set for a device that several claims may use at once.
	Share *Share `json:"share,omitempty"`
	// Extensions contains the data of extensions for the result.
	Extensions Extensions `json:"extensions,omitempty"`
	// Consumed is the consumed capacity of a shareable device, as Kubernetes quantities.
	Consumed map[string]string `json:"consumed,omitempty"`

	unknown unknownKeys
}

// MIG is the placement of a MIG device and, once it exists, its identity.
type MIG struct {
	// Profile is the driver's id of the GPU instance profile, Name its name: "1g.10gb".
	Profile int    `json:"profile"`
	Name    string `json:"name"`
	// Placement contains its memory slices.
	Placement gpu.Placement `json:"placement"`
	// Static: it was pre-created by an administrator, and the plugin never removes it.
	Static bool `json:"static,omitempty"`
	// Identity has no UUID until the device is created.
	Identity gpu.MIGIdentity `json:"identity"`

	unknown unknownKeys
}

// Share describes the shares of a device, one of which a claim uses, at the time when it was prepared.
type Share struct {
	// Replicas is the number of shares.
	Replicas int `json:"replicas"`
	// Name is the administrator's name of the shares; empty without a name.
	Name string `json:"name,omitempty"`

	unknown unknownKeys
}

// Step is one hardware effect.
type Step struct {
	// Kind is the step package that makes and undoes it.
	Kind string `json:"kind"`
	// Target is its physical GPU.
	Target gpu.UUID `json:"target"`
	// Device is the allocated device that the effect creates or changes; empty for another effect.
	Device string `json:"device,omitempty"`
	// ShareID distinguishes the shares of a device if the claim uses several; empty if it has one effect on the device.
	ShareID string `json:"shareID,omitempty"`
	// Args are the arguments of the step, in the step's own format.
	Args json.RawMessage `json:"args,omitempty"`
	// Made describes what the step made, even partly; empty until then.
	Made json.RawMessage `json:"made,omitempty"`
	// Undo is the reason why the last attempt to undo it failed.
	Undo string `json:"undo,omitempty"`
	// Whole means to Undo that the record was an answer until now: the effect is complete, or is gone. It is not stored.
	Whole bool `json:"-"`
	// Last means to Undo that no other record contains the same effect, for kinds of effects that several claims share. It is not stored.
	Last bool `json:"-"`
	// CDIDevice is the name of the device in the claim's CDI spec. It is set for Edits, and not stored.
	CDIDevice string `json:"-"`
	// ClaimUID is the UID of the claim. It is set for Edits, and not stored.
	ClaimUID string `json:"-"`

	unknown unknownKeys
}

// CDI lists the devices of a claim in its CDI spec.
type CDI struct {
	// Kind is "<vendor>/<class>".
	Kind string `json:"kind"`
	// Devices contains one name per result, in the order of the results.
	Devices []string `json:"devices"`

	unknown unknownKeys
}

// PendingCleanup is an effect that could not be undone yet.
type PendingCleanup struct {
	// Since is the time of the first failed attempt.
	Since time.Time `json:"since"`
	// Cause is the reason why the last one failed.
	Cause string `json:"cause"`

	unknown unknownKeys
}

// Use is how the result uses its GPU. With admin access it uses no more than a monitor device.
func (r *Result) Use() gpu.Use {
	if r.Admin {
		return gpu.Use{Type: gpu.TypeMonitor, Device: gpu.DeviceName(r.Device)}
	}
	u := gpu.Use{Type: r.Type, Device: gpu.DeviceName(r.Device), Shared: r.ShareID != ""}
	if r.MIG != nil {
		profile := gpu.MIGProfile{Name: r.MIG.Name}
		u.Placement, u.MediaExtensions = r.MIG.Placement, profile.HasMediaExtensions()
	}
	return u
}

// GPUs lists the physical GPUs of the record's results, each once, in the order of the results.
func (r *Record) GPUs() []gpu.UUID {
	var uuids []gpu.UUID
	seen := map[gpu.UUID]bool{}
	for i := range r.Results {
		if id := r.Results[i].GPUUUID; !seen[id] {
			seen[id] = true
			uuids = append(uuids, id)
		}
	}
	return uuids
}

// LockedGPUs lists the GPUs that the record owns or changes, each once: work on the record requires their locks. GPUs that are only
// monitored are excluded.
func (r *Record) LockedGPUs() []gpu.UUID {
	var uuids []gpu.UUID
	for i := range r.Results {
		if !r.Results[i].Admin {
			uuids = append(uuids, r.Results[i].GPUUUID)
		}
	}
	for i := range r.Steps {
		uuids = append(uuids, r.Steps[i].Target)
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

// ResultOf returns the index of the result whose device the step creates or changes, -1 without one.
func (r *Record) ResultOf(s *Step) int {
	return slices.IndexFunc(r.Results, func(result Result) bool { return s.names(&result) })
}

// ResultsOf returns the indexes of the results that the step affects: the result of its device and share, or, without a device, all results
// on its GPU. Results with admin access are excluded.
func (r *Record) ResultsOf(s *Step) (at []int) {
	for i := range r.Results {
		if result := &r.Results[i]; s.On(result) && !result.Admin {
			at = append(at, i)
		}
	}
	return at
}

// MIGResultOf returns the index of the result whose MIG device the step creates, -1 without one.
func (r *Record) MIGResultOf(s *Step) int {
	return slices.IndexFunc(r.Results, func(result Result) bool { return s.names(&result) && result.MIG != nil && !result.Admin })
}

// On reports whether the step affects the result's device: it concerns that device, or the whole GPU if the device uses it. A step of one
// share does not affect another share of the device.
func (s *Step) On(result *Result) bool {
	return result.GPUUUID == s.Target && (s.Device == "" && result.Type.UsesGPU() || s.names(result))
}

// names reports whether the step names the result's device, and its share if it names one.
func (s *Step) names(result *Result) bool {
	return result.Device == s.Device && result.GPUUUID == s.Target && (s.ShareID == "" || s.ShareID == result.ShareID)
}

// CDIKind is the CDI kind of a driver's claims: "k8s.<driverName>/claim".
func CDIKind(driverName string) string { return "k8s." + driverName + "/claim" }
