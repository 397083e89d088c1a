package explain

// Cause is why the claims of a pod cannot be allocated on a node.
type Cause string

// The causes, from the first to the last that a pool can reach.
const (
	ClassMissing    Cause = "ClassMissing"
	ExpressionError Cause = "ExpressionError"
	NoDevices       Cause = "NoDevices"
	PoolIncomplete  Cause = "PoolIncomplete"
	Selector        Cause = "Selector"
	Capacity        Cause = "Capacity"
	Count           Cause = "Count"
	Constraint      Cause = "Constraint"
	// Requests fit each by itself, not all together.
	Requests Cause = "Requests"
	Taint    Cause = "Taint"
	InUse    Cause = "InUse"
	// SearchTooLong means that the allocator did not end in time.
	SearchTooLong Cause = "SearchTooLong"
	Fits          Cause = "Fits"

	// NodeTaint and the following mean that the node, not its devices, refuses the pod.
	NodeTaint         Cause = "NodeTaint"
	NodeAffinity      Cause = "NodeAffinity"
	NodeUnschedulable Cause = "NodeUnschedulable"
	NodeResources     Cause = "NodeResources"
)

// Explanation says why a pod or a claim waits, or on which nodes it fits. Programs read it as JSON.
type Explanation struct {
	// Kind is Pod or ResourceClaim.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Fits reports whether a node exists on which the pod can run now.
	Fits bool `json:"fits"`
	// Sentence is the first line: the state, since when, and the main cause.
	Sentence string `json:"sentence"`
	// Requests are lines such as "gpu: 1 × mig-3g-40gb.gpu.prism.dev".
	Requests []string `json:"requests,omitempty"`
	// Groups are the nodes by cause, the most nodes first.
	Groups []Group `json:"groups"`
	// Nearest is the device with the fewest claims in the way; nil if no release of devices helps.
	Nearest *Nearest `json:"nearest,omitempty"`
	// Changes that make it run, the smallest first. The allocator confirmed each.
	Changes []Change `json:"changes,omitempty"`
	// Notes are further sentences, such as rights that the user lacks.
	Notes []string `json:"notes,omitempty"`
}

// Group is nodes with the same cause and detail.
type Group struct {
	Cause  Cause    `json:"cause"`
	Detail string   `json:"detail,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Nearest is a device that the claim would get if other claims released theirs.
type Nearest struct {
	Node string `json:"node"`
	// GPU is the name of the physical GPU, Device the name of the device. Both are empty if holders of several devices are in the
	// way.
	GPU    string `json:"gpu,omitempty"`
	Device string `json:"device,omitempty"`
	// Start and Size are the memory slices of a MIG device; Size is 0 for other devices.
	Start int `json:"start"`
	Size  int `json:"size"`
	// Alike is the number of devices with equally many holders, this one among them.
	Alike   int      `json:"alike"`
	Holders []Holder `json:"holders,omitempty"`
}

// Holder is a claim whose devices are in the way.
type Holder struct {
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// Pods are the names of its pods, Owner the controller of the first, such as "Deployment/web".
	Pods  []string `json:"pods,omitempty"`
	Owner string   `json:"owner,omitempty"`
	// Devices describes its devices, such as "1g.10gb at 2".
	Devices string `json:"devices,omitempty"`
	// Priority is the highest of its pods, Terminating reports whether all of them are being deleted.
	Priority    int32 `json:"priority,omitempty"`
	Terminating bool  `json:"terminating,omitempty"`
	// Hidden is set for claims that the user may not list; all other fields are empty then.
	Hidden bool `json:"hidden,omitempty"`
	// Created is the Unix time at which the claim was created, in seconds.
	Created int64 `json:"created,omitempty"`
}

// Change is a change that helps.
type Change struct {
	// Text is a sentence without a final stop: "request 2g.20gb: 17 free now".
	Text string `json:"text"`
}
