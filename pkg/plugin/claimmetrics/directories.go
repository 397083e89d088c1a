package claimmetrics

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// containerMetrics is the path in containers at which the directories of their claims are mounted.
const containerMetrics = "/run/prism/metrics"

// claimUID matches the name of a claim's directory; no other directory is made or removed.
var claimUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// dirPermissions is the mode of a claim's directory.
const dirPermissions = 0o755

// Extension keeps the directories in which prism-exporter writes the metrics of claims for their containers, one for each claim with
// exposeInContainer, and writes their metrics to the status of claims. The directories are on a tmpfs, and made again with the specs.
type Extension struct {
	Disk disk.Files
	// Dir is the host's directory with one subdirectory for each claim.
	Dir string
	// Exporter: prism-exporter runs on the node of that name.
	Exporter bool
	NodeName string
}

// Kind is claim.KindMetrics.
func (Extension) Kind() string { return claim.KindMetrics }

// Claim plans options for metrics.
func (m Extension) Claim(context.Context) claim.PlanExtension {
	return claim.MetricsExtension{Exporter: m.Exporter, NodeName: m.NodeName}
}

// exposes reports whether the containers of a result can read its metrics.
func exposes(r *checkpoint.Record, result *checkpoint.Result) (bool, error) {
	options, err := checkpoint.ExtensionOf[gpu.MetricsOptions](result.Extensions, claim.KindMetrics)
	return err == nil && options != nil && options.ExposeInContainer && claimUID.MatchString(r.Claim.UID), err
}

// EditsOf returns the mounts of a record's devices. Containers read the directory, and cannot write there.
func (m Extension) EditsOf(r *checkpoint.Record) (all []cdi.DeviceEdits, err error) {
	for i := range r.Results {
		exposed, err := exposes(r, &r.Results[i])
		if err != nil {
			return nil, err
		}
		if !exposed {
			continue
		}
		all = append(all, cdi.DeviceEdits{Device: r.CDI.Devices[i], Source: "exposeInContainer", Edits: cdi.Edits{Mounts: []*specs.Mount{{
			HostPath: m.of(r.Claim.UID), ContainerPath: containerMetrics + "/" + r.Claim.UID,
			Options: []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
		}}}})
	}
	return all, nil
}

// Makes reports whether a path is the directory of a claim.
func (m Extension) Makes(hostPath string) bool {
	return filepath.Dir(hostPath) == m.Dir && claimUID.MatchString(filepath.Base(hostPath))
}

func (m Extension) of(uid string) string { return filepath.Join(m.Dir, uid) }

// Ensure makes the claim's directory if its containers have it.
func (m Extension) Ensure(r *checkpoint.Record) error {
	for i := range r.Results {
		exposed, err := exposes(r, &r.Results[i])
		if err == nil && exposed {
			err = m.Disk.MakeDir(m.of(r.Claim.UID), dirPermissions)
		}
		if err != nil {
			return fmt.Errorf("making the metrics directory of claim %s: %w", r.Claim.UID, err)
		}
		if exposed {
			return nil
		}
	}
	return nil
}

// RemoveFiles removes the claim's directory with all that is in it; no error when there is none.
func (m Extension) RemoveFiles(uid string) error {
	if !claimUID.MatchString(uid) {
		return nil
	}
	if err := m.Disk.RemoveDir(m.of(uid)); err != nil {
		return fmt.Errorf("removing the metrics directory of claim %s: %w", uid, err)
	}
	return nil
}

// Claims lists the UIDs of the claims with a directory. Other names are not this driver's.
func (m Extension) Claims() ([]string, error) {
	names, err := m.Disk.List(m.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing the metrics directories in %s: %w", m.Dir, err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !claimUID.MatchString(name) }), nil
}
