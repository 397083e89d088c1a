package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// TestPackingIsAsTheDocsSay: loads and allocator are the same everywhere, so the figures are.
func TestPackingIsAsTheDocsSay(t *testing.T) {
	classes := []resourceapi.DeviceClass{class("mig."+testDriver, "mig")}
	p, err := MeasurePacking(t.Context(), testDriver, classes)
	require.NoError(t, err)
	assert.Greater(t, p.Published, p.ByName)
	var b strings.Builder
	(&Report{MIG: MIG{Scheduling: Scheduling{Packing: p}}}).packing(&b)
	assert.True(t, strings.HasSuffix(b.String(), "| jobs placed | 4.15 | 3.53 |\n"), "docs/benchmarks.md and docs/mig.md have other figures: %s", b.String())
	_, err = MeasurePacking(t.Context(), testDriver, nil)
	assert.ErrorContains(t, err, "mig."+testDriver)
}
