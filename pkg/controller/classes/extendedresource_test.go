package classes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// MIG devices that are created for a claim lack the attribute, and an evaluation error would end the scheduling of the pod.
func TestExpression_MIGDeviceWithoutReplicas_Exclusive(t *testing.T) {
	t.Parallel()
	device := func(replicas int64) dracel.Device {
		kind, profile := string(gpu.TypeMIG), "1g.10gb"
		d := dracel.Device{Driver: driver, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": {StringValue: &kind}, "profile": {StringValue: &profile},
		}}
		if replicas > 0 {
			d.Attributes["replicas"] = resourceapi.DeviceAttribute{IntValue: &replicas}
		}
		return d
	}
	for _, of := range []struct {
		use       use
		separated []string
		want      [3]bool // without the attribute, 1, 2
	}{
		{use{Type: gpu.TypeMIG, Profile: "1g.10gb"}, nil, [3]bool{true, true, true}},
		{use{Type: gpu.TypeMIG, Profile: "1g.10gb"}, []string{"1g.10gb"}, [3]bool{true, true, false}},
		{use{Type: gpu.TypeMIG}, []string{""}, [3]bool{true, true, false}},
		{use{Type: gpu.TypeMIG, Profile: "1g.10gb", Shared: true}, []string{"1g.10gb"}, [3]bool{false, false, true}},
		{use{Type: gpu.TypeTimeSlice, ShareName: "a"}, nil, [3]bool{}},
	} {
		text := expression(driver, []use{of.use}, of.separated)
		compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(text, dracel.Options{})
		require.Nil(t, compiled.Error, fmt.Sprint(compiled.Error))
		for replicas, want := range of.want {
			got, _, err := compiled.DeviceMatches(t.Context(), device(int64(replicas)))
			require.NoError(t, err, text)
			assert.Equal(t, want, got, "%s with %d replicas", text, replicas)
		}
	}
}
