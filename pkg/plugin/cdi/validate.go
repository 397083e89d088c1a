package cdi

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// longestKind is the length of the longest kind: Kubernetes allows 63 characters for the name of a driver. The kind is part of a file name,
// which filesystems limit to 255 bytes.
const longestKind = len("k8s.") + 63 + len("/claim")

// check refuses a spec that a container runtime would refuse: the runtime would fail the pod with an error that names neither claim nor
// device.
func check(spec *specs.Spec) error {
	if len(spec.Kind) > longestKind {
		return fmt.Errorf("kind %q must be at most %d characters", spec.Kind, longestKind)
	}
	vendor, class := parser.ParseQualifier(spec.Kind)
	if err := parser.ValidateVendorName(vendor); err != nil {
		return fmt.Errorf("kind %q: %w", spec.Kind, err)
	}
	if err := parser.ValidateClassName(class); err != nil {
		return fmt.Errorf("kind %q: %w", spec.Kind, err)
	}
	if err := checkEdits(&spec.ContainerEdits); err != nil {
		return err
	}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return err
		}
		if err := checkEdits(&d.ContainerEdits); err != nil {
			return fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	return nil
}

func checkEdits(edits *specs.ContainerEdits) error {
	if err := (&cdiapi.ContainerEdits{ContainerEdits: edits}).Validate(); err != nil {
		return err
	}
	texts := append([]string(nil), edits.Env...)
	for _, node := range edits.DeviceNodes {
		texts = append(texts, node.Path, node.HostPath)
	}
	for _, mount := range edits.Mounts {
		texts = append(append(texts, mount.HostPath, mount.ContainerPath), mount.Options...)
	}
	for _, hook := range edits.Hooks {
		texts = append(append(append(texts, hook.Path), hook.Args...), hook.Env...)
	}
	for _, text := range texts {
		if !plain(text) {
			return fmt.Errorf("%q must be UTF-8 text without control characters", text)
		}
	}
	return nil
}

// plain reports whether a text stays the same in a spec. Specs are written as JSON, which replaces invalid UTF-8, and read as YAML, which
// refuses control characters.
func plain(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(text)
}
