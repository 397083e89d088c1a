package gpu_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// TestSampling_MIGDevices_FilesHeld prints the files of the driver that this process has open before it samples a GPU instance, while it
// holds the samples, and after it has freed them: a file of the instance that stays open prevents its destruction. The test creates and
// destroys nothing.
func TestSampling_MIGDevices_FilesHeld(t *testing.T) {
	library, _ := driverFiles(t)
	d, gpus := openSampling(t, library)
	sampledAny := false
	for i := range gpus {
		g := &gpus[i]
		_, devices, err := d.MIGDevices(t.Context(), g.UUID)
		require.NoError(t, err)
		if !g.GPM {
			continue
		}
		for _, mig := range devices {
			sampledAny = true
			before := driverFDs(t)
			values := &metrics.Values{}
			require.NoError(t, d.Sample(t.Context(), g.UUID, mig.GPUInstance, allFields(), true, values))
			<-time.After(sampleGap) // of GPM, which compares two samples
			require.NoError(t, d.Sample(t.Context(), g.UUID, mig.GPUInstance, allFields(), false, values))
			_, active := values.Get(metrics.FieldSMActive)
			held := driverFDs(t)
			require.NoError(t, d.ReleaseSamples(t.Context(), g.UUID, mig.GPUInstance))
			freed := driverFDs(t)
			t.Logf("GPU %d, GPU instance %d (%s): samples with values: %t; files before %v, held %v, freed %v", g.Index, mig.GPUInstance, mig.Profile, active, before, held, freed)
			assert.LessOrEqual(t, len(freed), len(held), "freeing samples opens nothing")
		}
	}
	if !sampledAny {
		t.Skip("found no MIG device on a GPU with GPM")
	}
}

// driverFDs returns the driver's files that this process has open.
func driverFDs(t *testing.T) (files []string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if path, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.Contains(path, "nvidia") {
			files = append(files, path)
		}
	}
	slices.Sort(files)
	return files
}
