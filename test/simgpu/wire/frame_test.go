package wire

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var someRequest = Request{
	Session: 1 << 40,
	Name:    "nvmlDeviceGetUUID",
	Args: []Arg{
		{Direction: In, Size: 8, Bytes: []byte("handle-0")},
		{Direction: Out, Size: 96},
		{Direction: InOut, Size: 4, Bytes: []byte{1, 2, 3, 4}},
		{Direction: In, Size: 0, Bytes: []byte{}},
	},
}

func TestFrames_WriteAndRead_Equal(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteRequest(&b, someRequest))
	request, err := ReadRequest(&b)
	require.NoError(t, err)
	if diff := cmp.Diff(someRequest, request); diff != "" {
		t.Fatalf("request changed:\n%s", diff)
	}

	want := Reply{Return: 999, Outputs: [][]byte{[]byte("GPU-1\x00"), {}}}
	require.NoError(t, WriteReply(&b, want))
	reply, err := ReadReply(&b)
	require.NoError(t, err)
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Fatalf("reply changed:\n%s", diff)
	}
	_, err = ReadRequest(&b)
	require.ErrorIs(t, err, io.EOF)
}

// A truncated request is an error, not a panic or another call.
func TestFrames_Truncated_Error(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteRequest(&b, someRequest))
	whole := b.Bytes()
	for n := 4; n < len(whole); n++ {
		_, err := ReadRequest(bytes.NewReader(whole[:n]))
		require.Error(t, err, "%d bytes of the stream", n)

		cut := bytes.Clone(whole[:n])
		cut[0], cut[1] = byte(n-4), byte((n-4)>>8)
		_, err = ReadRequest(bytes.NewReader(cut))
		require.Error(t, err, "a frame of %d bytes", n)
	}
	_, err := ReadRequest(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}))
	require.ErrorContains(t, err, "at most 1048576 are allowed")
}
