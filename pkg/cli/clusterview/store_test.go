package clusterview

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStore_ReplacedAndDeleted_NoContentLeft(t *testing.T) {
	t.Parallel()
	s := NewStore()
	put := func(name, device string) {
		s.PutSlice(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "d", Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1}, NodeName: &name, Devices: []resourceapi.Device{{Name: device}},
		}})
	}
	for i := range 10 {
		put("a", fmt.Sprint("device", i))
		put("b", "device9")
		s.Cluster()
	}
	assert.Len(t, s.shapes.byKey, 1, "both are equal")
	assert.Len(t, s.checked, 1, "the former contents are not remembered")
	s.DeleteSlice("a")
	s.DeleteSlice("missing")
	assert.Len(t, s.shapes.byKey, 1)
	s.DeleteSlice("b")
	assert.Empty(t, s.shapes.byKey)
}
