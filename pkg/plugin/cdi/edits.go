package cdi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// Edits are the changes of a step to the containers that use a device.
type Edits struct {
	// Nodes are character devices. Leave Major and Minor at zero: they are read from the host when the spec is built. Without HostPath,
	// Path is also the path on the host.
	Nodes []DeviceNode
	// Mounts are mounts of the host's files and directories.
	Mounts []*specs.Mount
	// Env are environment variables by name.
	Env map[string]string
	// Hooks are programs of the host that the runtime executes.
	Hooks []*specs.Hook
	// Exclusive: one of Hooks fails a container that also uses another device, so other devices may set the same variables and paths to
	// other values.
	Exclusive bool
}

// DeviceEdits are the edits of one step for one device.
type DeviceEdits struct {
	// Device is the name in the spec.
	Device string
	// Source names what adds them, for errors: "step mps".
	Source string
	Edits  Edits
}

// verify returns the edits with the present numbers of their device nodes. It fails if a file of the host that they name is missing.
func (b *SpecBuilder) verify(edits Edits, made func(hostPath string) bool) (Edits, error) {
	nodes := make([]DeviceNode, 0, len(edits.Nodes))
	for _, n := range edits.Nodes {
		if n.HostPath == "" {
			n.HostPath = n.Path
		}
		major, minor, err := b.Stat(n.HostPath)
		if err != nil {
			return edits, err
		}
		n.Major, n.Minor = major, minor
		nodes = append(nodes, n)
	}
	for _, m := range edits.Mounts {
		if m.Type != "" && m.Type != "bind" {
			continue // another type of filesystem, such as a tmpfs
		}
		if made != nil && made(m.HostPath) {
			continue
		}
		if err := b.Exists(m.HostPath); err != nil {
			return edits, fmt.Errorf("mount of %s: %w", m.ContainerPath, err)
		}
	}
	for _, h := range edits.Hooks {
		if err := b.Exists(h.Path); err != nil {
			return edits, fmt.Errorf("%s hook: %w", h.HookName, err)
		}
	}
	edits.Nodes = nodes
	return edits, nil
}

// add adds the edits to the device, without duplicates.
func (d *Device) add(edits Edits) {
	for _, n := range edits.Nodes {
		if !slices.Contains(d.Nodes, n) {
			d.Nodes = append(d.Nodes, n)
		}
	}
	for _, m := range edits.Mounts {
		same := func(other *specs.Mount) bool {
			return other.ContainerPath == m.ContainerPath && mounted(other) == mounted(m)
		}
		if !slices.ContainsFunc(d.Mounts, same) {
			d.Mounts = append(d.Mounts, m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(edits.Env)) {
		if variable := name + "=" + edits.Env[name]; !slices.Contains(d.Env, variable) {
			d.Env = append(d.Env, variable)
		}
	}
	d.Hooks = append(d.Hooks, edits.Hooks...)
}

// edits adds the edits of steps to the devices of the claim. A container may use all devices of its claim, so steps of different devices
// must agree, too, unless a container with both devices does not start.
func (b *SpecBuilder) edits(c *Claim, request SpecRequest) error {
	all := request.Edits
	if len(all) == 0 {
		return nil
	}
	set, own := places{}, map[string]places{}
	common := Device{Nodes: c.Control, Mounts: c.Common.Mounts, Env: c.Common.Env}
	for _, n := range c.Common.DeviceNodes {
		common.Nodes = append(common.Nodes, DeviceNode{Path: n.Path, Major: n.Major, Minor: n.Minor})
	}
	set.all(common, "the driver")
	for i := range c.Devices {
		set.all(c.Devices[i], "device "+c.Devices[i].Name)
	}
	for _, of := range all {
		own[of.Device] = maps.Clone(set)
	}
	for _, of := range all {
		verified, err := b.verify(of.Edits, request.Made)
		if err == nil {
			var added Device
			added.add(verified)
			source := fmt.Sprintf("%s of device %s", of.Source, of.Device)
			if err = own[of.Device].step(added, source); err == nil && !verified.Exclusive {
				err = set.step(added, source)
			}
		}
		if err != nil {
			return &DeviceError{Device: of.Device, Edit: true, Err: fmt.Errorf("CDI edits of %s: %w", of.Source, err)}
		}
		for i := range c.Devices {
			if c.Devices[i].Name == of.Device {
				c.Devices[i].add(verified)
			}
		}
	}
	return nil
}

// place is the value of a path or a variable of a container, and its source.
type place struct{ value, source string }

// places maps container paths and variables to their values, by name.
type places map[string]place

// all adds the values that no step sets.
func (p places) all(d Device, source string) {
	for name, value := range d.places() {
		p[name] = place{value: value, source: source}
	}
}

// step adds the values that a step sets. It refuses a second, different value of a place: the order would decide which one a container
// gets.
func (p places) step(d Device, source string) error {
	values := d.places()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		was, set := p[name]
		if set && was.value != values[name] {
			return fmt.Errorf("%s is set to %q by %s and to %q by %s", name, was.value, was.source, values[name], source)
		}
		p[name] = place{value: values[name], source: source}
	}
	return nil
}

// places returns the values that the device sets in a container.
func (d *Device) places() map[string]string {
	values := map[string]string{}
	for _, n := range d.Nodes {
		values["container path "+n.Path] = fmt.Sprintf("device %d:%d", n.Major, n.Minor)
	}
	for _, m := range d.Mounts {
		values["container path "+m.ContainerPath] = mounted(m)
	}
	for _, variable := range d.Env {
		name, value, _ := strings.Cut(variable, "=")
		values["variable "+name] = value
	}
	return values
}

// mounted describes the source and the options of a mount.
func mounted(m *specs.Mount) string {
	how := m.Options
	if m.Type != "" {
		how = append([]string{m.Type}, how...)
	}
	if len(how) == 0 {
		return "mount of " + m.HostPath
	}
	return fmt.Sprintf("mount of %s (%s)", m.HostPath, strings.Join(how, ","))
}
