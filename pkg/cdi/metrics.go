package cdi

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
)

// containerMetrics is where containers have the directories of their claims.
const containerMetrics = "/run/prism/metrics"

// claimUID is what names the directory of a claim; nothing else is made or removed.
var claimUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Metrics are the directories in which prism-exporter writes the metrics of claims for their containers: one for each claim with
// exposeInContainer. They are on a tmpfs, and made again with the specs.
type Metrics struct {
	Disk disk.Files
	// Dir is the host's directory that has one for each claim.
	Dir string
}

// Edits returns the mounts of a record's devices. Containers read the directory, and cannot write there.
func (m Metrics) Edits(r *checkpoint.Record) (all []DeviceEdits) {
	for i := range r.Results {
		result := &r.Results[i]
		if result.Metrics == nil || !result.Metrics.ExposeInContainer || !claimUID.MatchString(r.Claim.UID) {
			continue
		}
		all = append(all, DeviceEdits{Device: r.CDI.Devices[i], Source: "exposeInContainer", Edits: Edits{Mounts: []*specs.Mount{{
			HostPath: m.of(r.Claim.UID), ContainerPath: containerMetrics + "/" + r.Claim.UID,
			Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
		}}}})
	}
	return all
}

// Exists is what reports whether something of the host that is added to devices exists. The directory of a claim is made with its spec.
func (m Metrics) Exists(of func(path string) error) func(path string) error {
	return func(path string) error {
		if filepath.Dir(path) == m.Dir && claimUID.MatchString(filepath.Base(path)) {
			return nil
		}
		return of(path)
	}
}

func (m Metrics) of(uid string) string { return filepath.Join(m.Dir, uid) }

// ensure makes the claim's directory where its spec mounts it.
func (m Metrics) ensure(uid string, spec *specs.Spec) error {
	mounts := func(mount *specs.Mount) bool { return mount.HostPath == m.of(uid) }
	mounted := slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return slices.ContainsFunc(d.ContainerEdits.Mounts, mounts) })
	if !mounted || !claimUID.MatchString(uid) {
		return nil
	}
	if err := m.Disk.MakeDir(m.of(uid), dirPermissions); err != nil {
		return fmt.Errorf("making the metrics directory of claim %s: %w", uid, err)
	}
	return nil
}

// remove removes the claim's directory with all that is in it; no error when there is none.
func (m Metrics) remove(uid string) error {
	if !claimUID.MatchString(uid) {
		return nil
	}
	if err := m.Disk.RemoveDir(m.of(uid)); err != nil {
		return fmt.Errorf("removing the metrics directory of claim %s: %w", uid, err)
	}
	return nil
}

// claims lists the UIDs of the claims that have a directory. Other names are not this driver's.
func (m Metrics) claims() ([]string, error) {
	names, err := m.Disk.List(m.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing the metrics directories in %s: %w", m.Dir, err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !claimUID.MatchString(name) }), nil
}

// Files are the files of claims: their specs, and what the specs mount that is theirs alone.
type Files struct {
	*Dir
	Metrics Metrics
}

// Write makes what the spec mounts, and puts the spec in place as a Dir does.
func (f Files) Write(claimUID string, spec *specs.Spec) error {
	if err := f.Metrics.ensure(claimUID, spec); err != nil {
		return err
	}
	return f.Dir.Write(claimUID, spec)
}

// Remove removes the claim's spec, and what it mounts; no error when there is none.
func (f Files) Remove(claimUID string) error {
	return errors.Join(f.Dir.Remove(claimUID), f.Metrics.remove(claimUID))
}

// Claims lists the UIDs of the claims that have a spec, or a directory for metrics.
func (f Files) Claims() ([]string, error) {
	uids, err := f.Dir.Claims()
	if err != nil {
		return nil, err
	}
	more, err := f.Metrics.claims()
	if err != nil {
		return nil, err
	}
	uids = append(uids, more...)
	slices.Sort(uids)
	return slices.Compact(uids), nil
}
