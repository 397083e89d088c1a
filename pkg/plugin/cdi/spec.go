package cdi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Kind returns the CDI kind of a driver's claims: "k8s.<driverName>/claim".
func Kind(driverName string) string { return checkpoint.CDIKind(driverName) }

// FileName returns the name of the spec's file for a kind and a claim: "k8s.<driverName>-claim_<claimUID>.json".
func FileName(kind, claimUID string) string {
	return strings.ReplaceAll(kind, "/", "-") + "_" + claimUID + ".json"
}

// DeviceName returns a device's name in the spec of a claim. It is unique per allocation result, because it is the kubelet's key for device
// health: "<claimUID>-<device>[-<shareID>|-admin][-<GPU or MIG UUID>]". The name of a device of several GPUs contains no UUID.
func DeviceName(claimUID string, device gpu.DeviceName, shareID string, admin bool, uuid string) string {
	parts := []string{claimUID, string(device)}
	switch {
	case shareID != "":
		parts = append(parts, shareID)
	case admin:
		parts = append(parts, "admin")
	}
	if uuid != "" {
		parts = append(parts, uuid)
	}
	return strings.Join(parts, "-")
}

// DeviceNode is a character device on the host.
type DeviceNode struct {
	// Path is the path in the container: "/dev/nvidia0".
	Path string
	// HostPath is the path on the host; the same as Path unless the driver's root contains its own /dev.
	HostPath string
	// Major and Minor are the present device numbers.
	Major, Minor int64
}

// Device is one device of a claim.
type Device struct {
	// Name is unique in the spec; see DeviceName.
	Name string
	// Nodes are the device nodes.
	Nodes []DeviceNode
	// Env are "NAME=value" pairs for containers that use the device.
	Env []string
	// Mounts and Hooks are also for containers that use the device.
	Mounts []*specs.Mount
	Hooks  []*specs.Hook
}

// Claim is the input for one spec.
type Claim struct {
	UID  string
	Kind string
	// Common contains the edits for every container of the claim; it is not changed.
	Common *specs.ContainerEdits
	// Control are the device nodes for every container of the claim.
	Control []DeviceNode
	// Devices must not be empty: CDI does not allow a spec without devices.
	Devices []Device
}

// Join builds the spec. It fails if a container runtime would refuse the spec. The results of several calls share no data that a caller
// could change.
func Join(c Claim) (*specs.Spec, error) {
	if len(c.Devices) == 0 {
		return nil, fmt.Errorf("building the CDI spec of claim %s: no devices", c.UID)
	}
	spec := &specs.Spec{Kind: c.Kind}
	seen := map[string]bool{}
	for _, d := range c.Devices {
		if seen[d.Name] {
			return nil, fmt.Errorf("building the CDI spec of claim %s: duplicate device %s", c.UID, d.Name)
		}
		seen[d.Name] = true
		edits := specs.ContainerEdits{Env: d.Env, DeviceNodes: deviceNodes(d.Nodes), Mounts: typed(d.Mounts), Hooks: d.Hooks}
		if len(edits.Env)+len(edits.DeviceNodes)+len(edits.Mounts)+len(edits.Hooks) == 0 {
			return nil, fmt.Errorf("building the CDI spec of claim %s: device %s has no container edits", c.UID, d.Name)
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: d.Name, ContainerEdits: edits})
	}
	if c.Common != nil {
		spec.ContainerEdits = *c.Common
	}
	spec.ContainerEdits.Mounts = typed(spec.ContainerEdits.Mounts)
	// A new list: appending to the shared one would change every other claim's spec.
	spec.ContainerEdits.DeviceNodes = append(deviceNodes(c.Control), spec.ContainerEdits.DeviceNodes...)
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return nil, fmt.Errorf("building the CDI spec of claim %s: %w", c.UID, err)
	}
	spec.Version = version
	if err := check(spec); err != nil {
		return nil, fmt.Errorf("building the CDI spec of claim %s: %w", c.UID, err)
	}
	return spec, nil
}

// typed returns the mounts with a type, as in the examples of the OCI specification, without changing the given mounts. Tests showed that
// without a type, not every runtime starts all containers of a spec.
func typed(mounts []*specs.Mount) []*specs.Mount {
	all := slices.Clone(mounts)
	for i, m := range all {
		if m.Type == "" {
			with := *m
			with.Type = "bind"
			all[i] = &with
		}
	}
	return all
}

// TypeMounts adds types to the mounts of a spec in JSON, as Join does.
func TypeMounts(data []byte) ([]byte, error) {
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("reading a CDI spec: %w", err)
	}
	for i := range spec.Devices {
		edits := &spec.Devices[i].ContainerEdits
		edits.Mounts = typed(edits.Mounts)
	}
	spec.ContainerEdits.Mounts = typed(spec.ContainerEdits.Mounts)
	var err error
	if spec.Version, err = specs.MinimumRequiredVersion(&spec); err != nil {
		return nil, fmt.Errorf("finding the version of a CDI spec: %w", err)
	}
	return json.Marshal(spec)
}

// deviceNodes includes all facts that a runtime would otherwise read on the host when the container starts.
func deviceNodes(nodes []DeviceNode) []*specs.DeviceNode {
	out := make([]*specs.DeviceNode, 0, len(nodes))
	for _, n := range nodes {
		node := &specs.DeviceNode{Path: n.Path, Type: "c", Major: n.Major, Minor: n.Minor, Permissions: "rw"}
		if n.HostPath != n.Path {
			node.HostPath = n.HostPath
		}
		out = append(out, node)
	}
	return out
}
