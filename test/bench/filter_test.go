package bench

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func class(name, deviceType string) resourceapi.DeviceClass {
	return resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q && device.attributes[%q].type == %q", testDriver, testDriver, deviceType),
		}}}},
	}
}

func TestTheSchedulerIsMeasured(t *testing.T) {
	classes := []resourceapi.DeviceClass{class(testDriver, "gpu"), class("mig."+testDriver, "mig")}
	s, err := MeasureScheduling(t.Context(), testDriver, classes)
	require.NoError(t, err)
	require.Len(t, s.Filters, len(filters))
	// A GPU, its monitor, and its 25 placements; on the mixed node each GPU has a pool of two slices, and the node one that is empty.
	assert.Equal(t, Offer{Devices: 16, Slices: 1}, s.Whole)
	assert.Equal(t, Offer{Devices: 8 * 27, Slices: 17}, s.Mixed)
	for i, f := range s.Filters {
		assert.Len(t, f.Mixed, filterSamples)
		onlyMixed := filters[i].slice || filters[i].full == "mig"
		assert.Equal(t, onlyMixed, len(f.Whole) == 0, f.What)
		t.Logf("%s: %s, %s", f.What, milliseconds(f.Whole.P50()), milliseconds(f.Mixed.P50()))
	}
	_, err = MeasureScheduling(t.Context(), testDriver, classes[:1])
	assert.ErrorContains(t, err, "mig."+testDriver)
}
