package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/claimmetrics"
)

// exposing exposes the metrics of the claim in its containers. Its UID must be in the API server's format.
func (a Act) exposing() Act {
	a.Exposing = true
	return a
}

// withMetrics adds a GPUMetricsConfig for all devices to the claim.
func withMetrics(rc *resourceapi.ResourceClaim, act Act) *resourceapi.ResourceClaim {
	if !act.Exposing {
		return rc
	}
	config := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim}
	const raw = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUMetricsConfig","exposeInContainer":true,"sets":["Memory"]}`
	config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}
	rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, config)
	return rc
}

// metrics returns the extension that manages the directories of claims for metrics.
func (m *Machine) metrics() claimmetrics.Extension {
	return claimmetrics.Extension{Disk: disk.OS{}, Dir: m.settings().MetricsDir()}
}

// scrape writes into the directories of claims, as the exporter does every few seconds.
func (m *Machine) scrape() error {
	claims, err := m.exposed()
	if err != nil {
		return err
	}
	for _, uid := range claims {
		file := filepath.Join(m.metrics().Dir, uid, "gpu.prom")
		if err := os.WriteFile(file, []byte("prism_gpu_up 1\n"), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// exposed lists the directories of claims.
func (m *Machine) exposed() ([]string, error) { return disk.OS{}.List(m.metrics().Dir) }

// directoriesAreRecorded checks that only claims with a record have a directory.
func (m *Machine) directoriesAreRecorded(records map[string]*checkpoint.Record) error {
	claims, err := m.exposed()
	for _, uid := range claims {
		if records[uid] == nil && uid != m.lost && !m.damaged(uid) {
			return fmt.Errorf("claim %s: directory for metrics without a record", uid)
		}
	}
	return err
}

// exposesMetrics checks that the directory of a prepared claim exists if the claim requests metrics.
func (m *Machine) exposesMetrics(r *checkpoint.Record) error {
	for i := range r.Results {
		metrics, err := checkpoint.ExtensionOf[gpu.MetricsOptions](r.Results[i].Extensions, claim.KindMetrics)
		if err != nil {
			return err
		}
		if metrics == nil || !metrics.ExposeInContainer {
			continue
		}
		info, err := os.Lstat(filepath.Join(m.metrics().Dir, r.Claim.UID))
		if err != nil {
			return fmt.Errorf("it was prepared, and its containers lack metrics: %w", err)
		}
		if info.Mode() != fs.ModeDir|0o755 {
			return fmt.Errorf("it was prepared, and the directory for its metrics has mode %v", info.Mode())
		}
	}
	return nil
}

// RemoveDir is a fault point if there is something to remove.
func (d instrumentedDisk) RemoveDir(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return d.changing(at("RemoveDir", dir), change{Call: removed, Path: dir}, func() error { return d.OS.RemoveDir(dir) })
}
