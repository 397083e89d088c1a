package protocol

// LimitRequest is the line that prism-hook sends: limit what the processes of a container can allocate on the GPU of a device.
type LimitRequest struct {
	LimitedDevice
	// Cgroup is the path of the container's cgroup below the mount of cgroup v2: "/kubepods/pod...".
	Cgroup string `json:"cgroup"`
	// Others are the devices of other claims that the container's memory is limited for: a cgroup has one limit on a GPU.
	Others []LimitedDevice `json:"others,omitempty"`
}

// LimitedDevice is a device that limits the memory of its containers.
type LimitedDevice struct {
	// Claim is the UID of the claim, Device the name of the device in its CDI spec.
	Claim  string `json:"claim"`
	Device string `json:"device"`
}

// Refusal is the line that prism-hook sends instead where it fails a container; nothing is answered.
type Refusal struct {
	LimitedDevice
	// Refused is why, for the status of the claim.
	Refused string `json:"refused"`
}

// LimitAnswer is the line that the plugin answers.
type LimitAnswer struct {
	// Error is why there is no limit; empty: it is in force.
	Error string `json:"error,omitempty"`
	// Retry: the same request may succeed soon.
	Retry bool `json:"retry,omitempty"`
}

// MaxLine bounds a line, in bytes.
const MaxLine = 16 << 10
