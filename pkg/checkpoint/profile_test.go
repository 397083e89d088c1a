package checkpoint

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// profiled is the record of a claim whose processes are profiled.
func profiled() *Record {
	r := whole("6f0c1d2e-0000-4000-8000-000000000005")
	r.Results[0].Profiled = true
	r.Profile = json.RawMessage(`{"kind":"ProfilerConfig","apiVersion":"gpu.prism.dev/v1alpha1","enabled":true,"match":{"regex":"^python"},"trace":["cuda","nvtx"],` +
		`"output":{"maxBytes":"4Gi","retention":"72h0m0s"},"later":{"a":1}}`)
	return r
}

// A plugin that knows no profiles reads the record, and writes all of it back.
func TestRecord_ProfileReadByEarlierVersion_Kept(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("testdata/v1-profile.json")
	require.NoError(t, err)
	_, body, err := open(written)
	require.NoError(t, err)
	rename := func(body []byte, from, to string) []byte {
		return bytes.ReplaceAll(body, []byte(`"`+from+`"`), []byte(`"`+to+`"`))
	}
	r, err := Decode(sealed(schema, rename(rename(body, "profile", "later-profile"), "profiled", "later-profiled")))
	require.NoError(t, err)
	require.Empty(t, r.Profile)
	require.False(t, r.Results[0].Profiled)
	r.State = Releasing
	got, err := Decode(sealed(schema, rename(rename(bodyOf(t, r), "later-profile", "profile"), "later-profiled", "profiled")))
	require.NoError(t, err)
	want := profiled()
	want.State = Releasing
	assert.Empty(t, cmp.Diff(want, got, ignoreUnknown), "also what this version does not know of the profile")
}
