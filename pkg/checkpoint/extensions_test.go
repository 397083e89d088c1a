package checkpoint

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecord_FirstSchema_RewrittenInSecond: the recorded profile, MPS and metrics of an earlier version stay the same data, including keys
// that it did not know, and an earlier version does not act on records of this one.
func TestRecord_FirstSchema_RewrittenInSecond(t *testing.T) {
	t.Parallel()
	for name, member := range map[string]string{"v1-mps.json": `"mps":{`, "v1-metrics.json": `"metrics":{`, "v1-profile.json": `"profile":{`} {
		written, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		_, body, err := open(written)
		require.NoError(t, err)
		require.Contains(t, string(body), member)
		r, err := Decode(sealed(firstSchema, bytes.ReplaceAll(body, []byte(member), []byte(member+`"unknown":{"a":1},`))))
		require.NoError(t, err)
		assert.Nil(t, r.unknown, name)
		again, err := Encode(r)
		require.NoError(t, err)
		head, body, err := open(again)
		require.NoError(t, err)
		assert.Equal(t, 2, head.Schema, name)
		assert.Contains(t, string(body), `"unknown":{"a":1}`)
		got, err := Decode(again)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(r, got, ignoreUnknown), name)
	}
}

// TestEncode_WithoutExtensions_FirstSchema: an earlier version may answer from such a record and undo it.
func TestEncode_WithoutExtensions_FirstSchema(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*Record{"whole": whole("uid-1"), "full": full(), "share": share()} {
		data, err := Encode(r)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(data), `{"schema":1,`), name)
	}
}

// TestStore_PutOverFirstSchema_OneOfBoth: the first write over a record of an earlier version replaces it completely.
func TestStore_PutOverFirstSchema_OneOfBoth(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	written, err := os.ReadFile("testdata/v1-profile.json")
	require.NoError(t, err)
	path := filepath.Join(dir, "claims", profiled().Claim.UID+".json")
	require.NoError(t, os.WriteFile(path, written, 0o600))
	r, err := s.Load(profiled().Claim.UID)
	require.NoError(t, err)
	r.State = Releasing
	require.NoError(t, s.Put(r))
	got, err := s.Load(r.Claim.UID)
	require.NoError(t, err)
	want := profiled()
	want.State = Releasing
	assert.Empty(t, cmp.Diff(want, got, ignoreUnknown))
}

// TestExtensions_UnknownKind_Kept like all unknown keys.
func TestExtensions_UnknownKind_Kept(t *testing.T) {
	t.Parallel()
	r := whole("uid-1")
	r.Extensions = Extensions{"later": json.RawMessage(`{"a":[1.5,null]}`)}
	r.Results[0].Extensions = Extensions{"other": json.RawMessage(`"x"`)}
	data, err := Encode(r)
	require.NoError(t, err)
	got, err := Decode(data)
	require.NoError(t, err)
	assert.Equal(t, []string{"later", "other"}, got.ExtensionKinds())
	assert.True(t, got.Extended("later"))
	assert.True(t, got.Extended("other"))
	assert.False(t, got.Extended("mps"))
	assert.Empty(t, cmp.Diff(r, got, ignoreUnknown))
}

func TestExtensionOf_Data_Decoded(t *testing.T) {
	t.Parallel()
	type data struct{ A int }
	var e Extensions
	none, err := ExtensionOf[data](e, "kind")
	require.NoError(t, err)
	assert.Nil(t, none)
	require.NoError(t, e.Set("kind", data{A: 7}))
	some, err := ExtensionOf[data](e, "kind")
	require.NoError(t, err)
	assert.Equal(t, &data{A: 7}, some)
	e["kind"] = json.RawMessage(`[]`)
	_, err = ExtensionOf[data](e, "kind")
	require.ErrorContains(t, err, "reading the data of extension kind: json: cannot unmarshal array")
	require.ErrorContains(t, e.Set("kind", func() {}), "encoding the data of extension kind: json: unsupported type")
}

// TestDecode_FormerMembersThatSayNothing_NoExtension: earlier versions may have interpreted them in the same way.
func TestDecode_FormerMembersThatSayNothing_NoExtension(t *testing.T) {
	t.Parallel()
	body := strings.Replace(string(bodyOf(t, whole("uid-1"))), `"request":`, `"mps":null,"profiled":false,"request":`, 1)
	r, err := Decode(sealed(firstSchema, []byte(body)))
	require.NoError(t, err)
	assert.Empty(t, r.ExtensionKinds())
	assert.NotContains(t, string(bodyOf(t, r)), "profiled")
}
