// Package maintenance defines the annotations of a Node by which an administrator takes a GPU out of service, has Prism release it for a
// reset, and declares it repaired. The kubelet plugin reads them, and the command kubectl prism gpu writes them. It imports nothing of Prism.
package maintenance

import "time"

// Verb is the first part of the domain of an annotation's key.
type Verb string

// The verbs.
const (
	// Maintain keeps new claims from a GPU; its value is the reason, any text.
	Maintain Verb = "maintenance"
	// Release closes Prism's sessions of the driver until a time in RFC 3339, at most ReleaseMax ahead.
	Release Verb = "release"
	// Heal ends findings that began before a time in RFC 3339.
	Heal Verb = "heal"
)

const (
	// ReleaseDefault is for how long sessions are closed.
	ReleaseDefault = 2 * time.Minute
	// ReleaseMax is for how long they can be closed.
	ReleaseMax = 10 * time.Minute
	// All means every GPU of the Node, in the place of a GPU in a key of Maintain.
	All = "all"
)

// Key is the key of an annotation: the verb and the driver's name as domain, and the name of the GPU's device, "gpu-5d3f61a2", or All.
func Key(verb Verb, driverName, gpuName string) string {
	return string(verb) + "." + driverName + "/" + gpuName
}
