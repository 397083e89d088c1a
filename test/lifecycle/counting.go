package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// withCounting adds a GPUMetricsConfig for the GPUs of the claim.
func withCounting(rc *resourceapi.ResourceClaim, act Act) *resourceapi.ResourceClaim {
	if !act.Counting {
		return rc
	}
	config := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim}
	const metrics = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUMetricsConfig","source":"NsightSystems"}`
	const profile = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig","injection":"None","captureEnvironment":true,` +
		`"output":{"retention":"1h","maxBytes":"1Mi"}}`
	for _, raw := range []string{metrics, profile} {
		one := config
		one.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}
		rc.Status.Allocation.Devices.Config = append(rc.Status.Allocation.Devices.Config, one)
	}
	return rc
}

// collected is a path in the folder of a claim of the node's collector.
func (m *Machine) collected(uid string, names ...string) string {
	return filepath.Join(append([]string{m.settings().CollectorDir(), uid}, names...)...)
}

// countersSite returns the kind of a file of the collector.
func countersSite(path string) string {
	_, below, _ := strings.Cut(path, "/collector/")
	_, file, inside := strings.Cut(below, "/")
	if !inside {
		return "counters"
	}
	return "counters' " + strings.TrimSuffix(strings.ReplaceAll(file, "/", " "), disk.TempSuffix)
}

// hasOrder checks that the collector records the counters of a prepared claim, and has the folders for that.
func (m *Machine) hasOrder(r *checkpoint.Record) error {
	if !plan.Counted(r) {
		return nil
	}
	raw, err := os.ReadFile(m.collected(r.Claim.UID, counters.OrderFile))
	if err != nil {
		return fmt.Errorf("it was prepared, and its counters are not ordered: %w", err)
	}
	order, err := counters.ParseOrder(raw)
	if err != nil || order.Claim != r.Claim.UID {
		return fmt.Errorf("it was prepared, and its order is %s: %w", raw, err)
	}
	for _, name := range []string{counters.PlanDir, counters.InboxDir} {
		if info, err := os.Lstat(m.collected(r.Claim.UID, name)); err != nil || info.Mode() != fs.ModeDir|0o700 {
			return fmt.Errorf("it was prepared, and the collector's folder %s is %v: %w", name, info, err)
		}
	}
	return nil
}

// recordings returns the folder of the recordings for a claim: the collector's, if its counters are ordered.
func (m *Machine) recordings(uid string) string {
	if _, err := os.Lstat(m.collected(uid, counters.OrderFile)); err == nil {
		return m.collected(uid, counters.InboxDir)
	}
	return m.inbox(uid)
}

// nothingCollected checks that no folder of a claim is left to the collector.
func (m *Machine) nothingCollected() error {
	left, err := os.ReadDir(m.settings().CollectorDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%v is left of the collector's folders", left)
	}
	return nil
}
