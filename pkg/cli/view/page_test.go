package view

import (
	"bytes"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestSplit_AnswerCut_Error(t *testing.T) {
	t.Parallel()
	list := &resourceapi.ResourceSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "next"}}
	list.SetGroupVersionKind(resourceapi.SchemeGroupVersion.WithKind("ResourceSliceList"))
	for i := range 3 {
		list.Items = append(list.Items, *published(i, driver))
	}
	var answer bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, &answer))
	names := 0
	count := func(o object) error {
		var decoded resourceapi.ResourceSlice
		names++
		return o.decode(&decoded)
	}
	meta, err := split(iotest.OneByteReader(bytes.NewReader(answer.Bytes())), count)
	require.NoError(t, err)
	assert.Equal(t, "next", meta.Continue)
	assert.Equal(t, 3, names)
	complete := 0
	for n := range answer.Len() {
		names = 0
		if _, err := split(bytes.NewReader(answer.Bytes()[:n]), count); err == nil {
			assert.Equal(t, 3, names, "%d bytes", n) // all but the last fields of the envelope, which are empty
			complete++
		}
	}
	assert.LessOrEqual(t, complete, 4)
	for _, text := range []string{"", "k8s\x00\x12\xff\xff\xff\xff\x7f", "k8s\x00\x12\x03\x12\x05ab", "k8s\x00\x12\x03\x12\x02\x12\x00", "k8s\x00\x10\x01", "<html>"} {
		_, err := split(bytes.NewReader([]byte(text)), count)
		assert.Error(t, err, "%q", text)
	}
}
