package checkpoint

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// State is how far a claim's work has come.
type State string

// The states of a record.
const (
	// Intent: hardware effects are about to be made, or some were; after a crash they are undone.
	Intent State = "intent"
	// Done: the claim is prepared and its answer is this record.
	Done State = "done"
	// Releasing: undoing has begun. A record that stays in this state has a pending cleanup.
	Releasing State = "releasing"
)

// Record is all that is known of one claim's work; undoing needs nothing else, neither the API server nor the claim.
type Record struct {
	// Claim is the claim that the record is of.
	Claim Claim `json:"claim"`
	// BootID is the boot during which the hardware effects were made; they are gone after another.
	BootID string `json:"bootID"`
	// Writer is the version of the plugin that wrote it last.
	Writer string `json:"writer"`
	// State is how far the work has come.
	State State `json:"state"`
	// Results are the claim's allocation results of this driver, in the claim's order.
	Results []Result `json:"results"`
	// Steps are the hardware effects in the order in which they are made.
	Steps []Step `json:"steps,omitempty"`
	// Extensions is what extensions keep of the whole claim.
	Extensions Extensions `json:"extensions,omitempty"`
	// CDI names what the kubelet was, or will be, answered.
	CDI CDI `json:"cdi"`
	// PendingCleanup says since when and why undoing fails; nil as long as no attempt has failed.
	PendingCleanup *PendingCleanup `json:"debt,omitempty"`

	// newSchema is the schema it was read from where this version does not know that, else 0.
	newSchema int
	// former: it was read from the directory of an earlier driver name.
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

// Result is one allocation result: the device that a request was allocated.
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
	// GPUUUID is the physical GPU, PCIBusID where it sat; empty for a monitor device, which shows all GPUs of the node. Earlier versions
	// had one per GPU.
	GPUUUID  gpu.UUID `json:"gpuUUID"`
	PCIBusID string   `json:"pciBusID"`
	// MIG is set for MIG devices.
	MIG *MIG `json:"mig,omitempty"`
	// Share is set for a device that several claims may use at once.
	Share *Share `json:"share,omitempty"`
	// Extensions is what extensions keep of the result.
	Extensions Extensions `json:"extensions,omitempty"`
	// Consumed is the capacity taken of a shareable device, as Kubernetes quantities.
	Consumed map[string]string `json:"consumed,omitempty"`

	unknown unknownKeys
}

// MIG is where a MIG device is and, once it exists, which one it is.
type MIG struct {
	// Profile is the driver's id of the GPU instance profile, Name its name: "1g.10gb".
	Profile int    `json:"profile"`
	Name    string `json:"name"`
	// Placement is the memory slices that it takes.
	Placement gpu.Placement `json:"placement"`
	// Static: it was pre-created by an administrator, and the plugin never removes it.
	Static bool `json:"static,omitempty"`
	// Identity has no UUID as long as nothing is made.
	Identity gpu.MIGIdentity `json:"identity"`

	unknown unknownKeys
}

// Share says of which shares of a device a claim has one, as they were when it was prepared.
type Share struct {
	// Replicas is how many there were.
	Replicas int `json:"replicas"`
	// Name is what an administrator calls them; empty without a name.
	Name string `json:"name,omitempty"`

	unknown unknownKeys
}

// Step is one hardware effect.
type Step struct {
	// Kind names the step package that does and undoes it.
	Kind string `json:"kind"`
	// Target is the physical GPU it works on.
	Target gpu.UUID `json:"target"`
	// Device is the allocated device that the effect is or is on; empty where it is another effect.
	Device string `json:"device,omitempty"`
	// ShareID distinguishes the shares of a device of which the claim has several; empty where it has one effect on the device.
	ShareID string `json:"shareID,omitempty"`
	// Args is what the step was asked to do, in the step's own format.
	Args json.RawMessage `json:"args,omitempty"`
	// Made is what the step made, also half of it; empty until then.
	Made json.RawMessage `json:"made,omitempty"`
	// Undo is why the last attempt to undo it failed.
	Undo string `json:"undo,omitempty"`
	// Whole means to Undo that the record has answered until now: the effect is as it was made, or is gone. It is not stored.
	Whole bool `json:"-"`
	// Last means to Undo that no other record has the same effect, as far as its kind is one that several claims share. It is not
	// stored.
	Last bool `json:"-"`
	// CDIDevice is the name of the device in the claim's CDI spec. Edits has it; it is not stored.
	CDIDevice string `json:"-"`
	// ClaimUID is the claim's. Edits has it; it is not stored.
	ClaimUID string `json:"-"`

	unknown unknownKeys
}

// CDI names a claim's devices in its CDI spec.
type CDI struct {
	// Kind is "<vendor>/<class>".
	Kind string `json:"kind"`
	// Devices holds one name per result, in the order of the results.
	Devices []string `json:"devices"`

	unknown unknownKeys
}

// PendingCleanup is an effect that could not be undone yet.
type PendingCleanup struct {
	// Since is the first failed attempt.
	Since time.Time `json:"since"`
	// Cause is why the last one failed.
	Cause string `json:"cause"`

	unknown unknownKeys
}

// Use is what the result has of its GPU. With admin access that is no more than what a monitor device has.
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

// LockedGPUs lists the GPUs that the record owns or changes, each once: work on the record needs their locks. A GPU that is only
// monitored is not among them.
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

// ResultOf returns the index of the result that the step's effect is or is on, -1 without one.
func (r *Record) ResultOf(s *Step) int {
	return slices.IndexFunc(r.Results, func(result Result) bool { return s.names(&result) })
}

// ResultsOf returns the indexes of the results that the step has an effect on: that of its device and share, or, without a device, all on
// its GPU. Results with admin access are not among them.
func (r *Record) ResultsOf(s *Step) (at []int) {
	for i := range r.Results {
		if result := &r.Results[i]; s.On(result) && !result.Admin {
			at = append(at, i)
		}
	}
	return at
}

// MIGResultOf returns the index of the result whose MIG device the step makes, -1 without one.
func (r *Record) MIGResultOf(s *Step) int {
	return slices.IndexFunc(r.Results, func(result Result) bool { return s.names(&result) && result.MIG != nil && !result.Admin })
}

// On reports whether the step has its effect on the result's device: it is of that device, or of the whole GPU. A step of one share is not on
// another share of the device.
func (s *Step) On(result *Result) bool {
	return result.GPUUUID == s.Target && (s.Device == "" || s.names(result))
}

// names reports whether the step is of the result's device, and of its share where it names one.
func (s *Step) names(result *Result) bool {
	return result.Device == s.Device && result.GPUUUID == s.Target && (s.ShareID == "" || s.ShareID == result.ShareID)
}

// CDIKind is the CDI kind of a driver's claims: "k8s.<driverName>/claim".
func CDIKind(driverName string) string { return "k8s." + driverName + "/claim" }
