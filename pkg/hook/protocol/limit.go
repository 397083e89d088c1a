package protocol

// LimitRequest is the line that prism-hook sends to limit the memory that the processes of a container can allocate on the GPU of a device.
type LimitRequest struct {
	LimitedDevice
	// Cgroup is the path of the container's cgroup below the mount of cgroup v2: "/kubepods/pod...".
	Cgroup string `json:"cgroup"`
	// Others are the devices of other claims that limit the container's memory: a cgroup has only one limit per GPU.
	Others []LimitedDevice `json:"others,omitempty"`
}

// LimitedDevice is a device that limits the memory of its containers.
type LimitedDevice struct {
	// Claim is the UID of the claim, Device the name of the device in its CDI spec.
	Claim  string `json:"claim"`
	Device string `json:"device"`
}

// Refusal is the line that prism-hook sends instead if it fails a container; there is no answer.
type Refusal struct {
	LimitedDevice
	// Refused is the reason, for the status of the claim.
	Refused string `json:"refused"`
}

// LimitAnswer is the line that the plugin answers.
type LimitAnswer struct {
	// Error is the reason why there is no limit; empty: the limit is set.
	Error string `json:"error,omitempty"`
	// Retry: the same request may succeed soon.
	Retry bool `json:"retry,omitempty"`
}

// MaxLine is the maximum length of a line, in bytes.
const MaxLine = 16 << 10
