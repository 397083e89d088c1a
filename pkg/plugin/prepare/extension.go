package prepare

import (
	"errors"
	"fmt"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Extension is something that is done for claims besides the steps of their devices. Its optional parts are the interfaces below, which are
// asked only for records that the extension has data in; see Concerned.
type Extension interface {
	// Kind is the key of the extension's data in records.
	Kind() string
}

// Inactive is an Extension that does nothing for its claims on this node, because its service is switched off, for example: records with
// its data are undone as others are.
type Inactive string

// Kind is its text.
func (i Inactive) Kind() string { return string(i) }

// Concerned is an Extension without data in records.
type Concerned interface {
	Extension
	// Concerns reports whether the extension is asked for a record.
	Concerns(r *checkpoint.Record) bool
}

// RecordEditor is an Extension that changes the containers of a claim.
type RecordEditor interface {
	Extension
	// EditsOf returns the CDI edits of a record's devices. It must return the same for the same record: a lost spec is built again from it.
	EditsOf(r *checkpoint.Record) ([]cdi.DeviceEdits, error)
}

// Marker is an Extension whose devices prism-hook distinguishes from others.
type Marker interface {
	Extension
	// Mark is added to the type of the result's device in the variable by which prism-hook finds the device; empty for none.
	Mark(result *checkpoint.Result) string
}

// Filer is an Extension with files of claims on the host, which specs mount.
type Filer interface {
	Extension
	// Makes reports whether a path of the host is of a file that Ensure makes: it need not exist when a spec is built.
	Makes(hostPath string) bool
	// Ensure makes the files of a record before its spec is put in place; those that are the same are left alone.
	Ensure(r *checkpoint.Record) error
	// RemoveFiles removes the files that only the claim uses, after its spec was removed; no error if there are none.
	RemoveFiles(claimUID string) error
}

// SpecFollower is an Extension that follows the specs of claims.
type SpecFollower interface {
	Extension
	// Written is called after the spec of a record was put in place, Released before one is removed, also for a claim without a record.
	Written(r *checkpoint.Record)
	Released(claimUID string)
}

// Lister is a Filer that finds the files of claims without a spec.
type Lister interface {
	Filer
	// Claims lists the UIDs of claims that have files.
	Claims() ([]string, error)
}

// Extensions are the extensions of a node. They edit containers in their order.
type Extensions []Extension

// of returns the extensions that concern a record and implement an interface.
func of[T Extension](all Extensions, r *checkpoint.Record) (asked []T) {
	for _, e := range all {
		part, ok := e.(T)
		if !ok {
			continue
		}
		if c, plain := e.(Concerned); plain && !c.Concerns(r) || !plain && !r.Extended(e.Kind()) {
			continue
		}
		asked = append(asked, part)
	}
	return asked
}

// unknown is the error of a record with data of an extension that only a newer version supports; nil for another record.
func (all Extensions) unknown(r *checkpoint.Record) error {
	for _, kind := range r.ExtensionKinds() {
		if !slices.ContainsFunc(all, func(e Extension) bool { return e.Kind() == kind }) {
			return &gpu.UnsupportedError{
				Feature: "extension " + kind, Needs: fmt.Sprintf("version %s of the plugin, or a later one, on this node again", r.Writer),
			}
		}
	}
	return nil
}

// marks returns the marks of the record's devices, by their names in the spec.
func (all Extensions) marks(r *checkpoint.Record) map[string]string {
	var marks map[string]string
	for _, e := range of[Marker](all, r) {
		for i := range r.Results {
			mark := e.Mark(&r.Results[i])
			if mark == "" {
				continue
			}
			if marks == nil {
				marks = map[string]string{}
			}
			marks[r.CDI.Devices[i]] += mark
		}
	}
	return marks
}

// edits returns the edits that extensions add to the record's devices.
func (all Extensions) edits(r *checkpoint.Record) (edits []cdi.DeviceEdits, err error) {
	for _, e := range of[RecordEditor](all, r) {
		more, err := e.EditsOf(r)
		if err != nil {
			return nil, err
		}
		edits = append(edits, more...)
	}
	return edits, nil
}

// makes reports whether an extension makes a path of the host for the record.
func (all Extensions) makes(r *checkpoint.Record) func(hostPath string) bool {
	filers := of[Filer](all, r)
	return func(hostPath string) bool {
		return slices.ContainsFunc(filers, func(e Filer) bool { return e.Makes(hostPath) })
	}
}

// extendedSpecs are specs with the files that extensions keep beside them.
type extendedSpecs struct {
	Specs
	extensions Extensions
}

// Write makes the files that the spec mounts, and puts it in place.
func (s extendedSpecs) Write(r *checkpoint.Record, spec *specs.Spec) error {
	for _, e := range of[Filer](s.extensions, r) {
		if err := e.Ensure(r); err != nil {
			return err
		}
	}
	if err := s.Specs.Write(r, spec); err != nil {
		return err
	}
	for _, e := range of[SpecFollower](s.extensions, r) {
		e.Written(r)
	}
	return nil
}

// removeOf removes the spec of a record, and the files of its extensions.
func (s extendedSpecs) removeOf(r *checkpoint.Record) error {
	return s.remove(r.Claim.UID, of[SpecFollower](s.extensions, r), of[Filer](s.extensions, r))
}

// Remove removes the spec and files of a claim without a record.
func (s extendedSpecs) Remove(claimUID string) error {
	return s.remove(claimUID, implementing[SpecFollower](s.extensions), implementing[Filer](s.extensions))
}

func (s extendedSpecs) remove(claimUID string, followers []SpecFollower, filers []Filer) error {
	for _, e := range followers {
		e.Released(claimUID)
	}
	failed := []error{s.Specs.Remove(claimUID)}
	for _, e := range filers {
		failed = append(failed, e.RemoveFiles(claimUID))
	}
	return errors.Join(failed...)
}

// Claims lists the claims with a spec or with files of an extension.
func (s extendedSpecs) Claims() ([]string, error) {
	uids, err := s.Specs.Claims()
	if err != nil {
		return nil, err
	}
	for _, e := range implementing[Lister](s.extensions) {
		more, err := e.Claims()
		if err != nil {
			return nil, err
		}
		uids = append(uids, more...)
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

func implementing[T Extension](all Extensions) (parts []T) {
	for _, e := range all {
		if part, ok := e.(T); ok {
			parts = append(parts, part)
		}
	}
	return parts
}
