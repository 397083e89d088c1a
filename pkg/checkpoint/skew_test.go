package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// golden are the records of all versions. None may ever be removed.
var golden = map[string]func() *Record{
	"v1-whole.json":   func() *Record { return whole("6f0c1d2e-0000-4000-8000-000000000000") },
	"v1-full.json":    full,
	"v1-share.json":   share,
	"v1-mps.json":     mps,
	"v1-metrics.json": metrics,
	"v1-profile.json": profiled,
	"v1-later.json":   full,
	"v2-mps.json":     mps,
	"v2-metrics.json": metrics,
	"v2-profile.json": profiled,
}

// goldenBytes returns the golden files by name.
func goldenBytes(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, path := range paths {
		files[filepath.Base(path)], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	return files
}

// sealed is a record file with this body.
func sealed(schema int, body []byte) []byte {
	head := fmt.Sprintf(`{"schema":%d,"crc32c":%q,"len":%d}`, schema, checksum(schema, body), len(body))
	return bytes.Join([][]byte{[]byte(head), body, nil}, []byte("\n"))
}

// bodyOf is the body of a record in the format of this version.
func bodyOf(t testing.TB, r *Record) []byte {
	t.Helper()
	data, err := Encode(r)
	require.NoError(t, err)
	_, body, err := open(data)
	require.NoError(t, err)
	return body
}

// withLater adds the key "later" to every object of a JSON text, like a newer version, and counts them.
func withLater(t testing.TB, body []byte) (more []byte, objects int) {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(body, &value))
	eachObject(value, func(object map[string]any) {
		object["later"] = map[string]any{"x": []any{1.5, nil, "<&>"}}
		objects++
	})
	more, err := json.Marshal(value)
	require.NoError(t, err)
	return more, objects
}

// eachObject visits every object, the innermost first, except additions of a newer version and objects without fixed keys.
func eachObject(value any, visit func(map[string]any)) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			eachObject(element, visit)
		}
	case map[string]any:
		for key, member := range value {
			if key != "later" && key != "consumed" {
				eachObject(member, visit)
			}
		}
		visit(value)
	}
}

// TestRecords_Golden_Decoded ensures that records of every version stay readable forever, with the same meaning.
func TestRecords_Golden_Decoded(t *testing.T) {
	t.Parallel()
	files := goldenBytes(t)
	for name, written := range golden {
		want := written()
		if _, exists := files[name]; !exists && os.Getenv("UPDATE") != "" {
			files[name], _ = Encode(want)
			require.NoError(t, os.WriteFile(filepath.Join("testdata", name), files[name], 0o644))
		}
		got, err := Decode(files[name])
		require.NoError(t, err, name)
		if strings.HasPrefix(name, "v2-") {
			encoded, err := Encode(want)
			require.NoError(t, err)
			assert.Equal(t, string(files[name]), string(encoded), "as it is written")
		}
		if name == "v1-later.json" {
			got.Steps[0].Args, got.Steps[0].Made = want.Steps[0].Args, want.Steps[0].Made
		}
		assert.Empty(t, cmp.Diff(want, got, ignoreUnknown), name)
		delete(files, name)
	}
	assert.Empty(t, slices.Collect(maps.Keys(files)), "golden records that are not read")
}

// TestRecord_UnknownKeys_Rewritten at every level: an older plugin that changes a record keeps everything of a newer one's.
func TestRecord_UnknownKeys_Rewritten(t *testing.T) {
	t.Parallel()
	body, objects := withLater(t, bodyOf(t, full()))
	require.Equal(t, 8, objects, "record, claim, result, step, args, made, CDI, pending cleanup")
	got, err := Decode(sealed(schema, body))
	require.NoError(t, err)
	got.State, got.Writer, got.PendingCleanup.Cause, got.Steps[0].Undo, got.Results[0].Pool = Intent, "v0", "other", "other", "n1"

	var value any
	require.NoError(t, json.Unmarshal(bodyOf(t, got), &value))
	eachObject(value, func(object map[string]any) {
		assert.Equal(t, map[string]any{"x": []any{1.5, nil, "<&>"}}, object["later"], "%v", object)
		objects--
	})
	assert.Zero(t, objects)
	for _, changed := range []string{`"state":"intent"`, `"writer":"v0"`, `"cause":"other"`, `"undo":"other"`, `"pool":"n1"`} {
		assert.Contains(t, string(bodyOf(t, got)), changed)
	}
}

// TestDecode_KeyInAnotherCase_Damaged: such a key is not unknown, because the library reads it into the field.
func TestDecode_KeyInAnotherCase_Damaged(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"State", "\u017ftate"} {
		body := strings.Replace(string(bodyOf(t, full())), `"debt":`, `"`+key+`":"done","debt":`, 1)
		_, err := Decode(sealed(schema, []byte(body)))
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "is \"state\" in another case")
	}
	body := strings.Replace(string(bodyOf(t, full())), `"debt":`, `"":1,"debt":`, 1)
	r, err := Decode(sealed(schema, []byte(body)))
	require.NoError(t, err)
	assert.Equal(t, unknownKeys{"": json.RawMessage("1")}, r.unknown)
}

// newerRecords are files that only a newer version understands, with the errors of this version.
func newerRecords(t *testing.T) map[string]struct {
	data []byte
	says string
} {
	t.Helper()
	changed := func(old, new string) []byte {
		return []byte(strings.Replace(string(bodyOf(t, full())), old, new, 1))
	}
	const fix = " of its record: run that version, or a later one, on this node again"
	return map[string]struct {
		data []byte
		says string
	}{
		"schema": {
			sealed(3, changed(`"cdi":`, `"cdis":[],"was":`)),
			"version v0.1.0 of the plugin prepared the claim, and this version does not know schema 3" + fix,
		},
		"state": {
			sealed(1, changed(`"releasing"`, `"parked"`)),
			`version v0.1.0 of the plugin prepared the claim, and this version does not know state "parked"` + fix,
		},
		"types": {
			sealed(9, changed(`"writer":"v0.1.0"`, `"writer":{"version":1}`)),
			"a newer version of the plugin prepared the claim, and this version does not know schema 9" + fix,
		},
	}
}

// TestStore_NewerRecord_LeftAlone: the plugin neither answers from it, nor overwrites or renames it.
func TestStore_NewerRecord_LeftAlone(t *testing.T) {
	t.Parallel()
	for name, newer := range newerRecords(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := newStore(t)
			uid := full().Claim.UID
			path := filepath.Join(dir, "claims", uid+".json")
			require.NoError(t, os.WriteFile(path, newer.data, 0o600))

			r, err := s.Load(uid)
			assert.Nil(t, r)
			var understood *NewerError
			require.ErrorAs(t, err, &understood)
			assert.Equal(t, newer.says, understood.Error())
			require.NotErrorIs(t, err, ErrDamaged)
			require.NotErrorIs(t, err, gpu.ErrNotFound)

			records, damaged, err := s.All()
			assert.Empty(t, damaged)
			if understood.Record == nil {
				require.ErrorIs(t, err, ErrUnreadable, "its GPUs are not known")
				require.ErrorContains(t, err, newer.says)
			} else {
				require.NoError(t, err)
				require.Len(t, records, 1)
				assert.True(t, records[0].Newer())
				assert.Equal(t, full().GPUs(), records[0].GPUs())
				err = s.Put(records[0])
				require.ErrorAs(t, err, &understood)
				require.ErrorContains(t, err, newer.says)
			}
			kept, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(newer.data), string(kept))
		})
	}
	assert.False(t, full().Newer())
}

// TestDecode_TruncatedOrFlipped_Damaged: a golden record without its end, or with one changed byte, is the same record or damaged, and
// never one of a newer version. In the header, which the checksum does not cover, every other value of each byte is tried.
func TestDecode_TruncatedOrFlipped_Damaged(t *testing.T) {
	t.Parallel()
	for name, data := range goldenBytes(t) {
		want, err := Decode(data)
		require.NoError(t, err)
		same := bodyOf(t, want)
		harmless := 0
		check := func(data []byte, what string, n int) {
			got, err := Decode(data)
			if errors.Is(err, ErrDamaged) {
				return
			}
			require.NoError(t, err, "%s: "+what, name, n)
			harmless++
			require.Equal(t, string(same), string(bodyOf(t, got)), "%s: "+what, name, n)
		}
		for n := range data {
			check(data[:n], "the first %d bytes", n)
		}
		require.Equal(t, 1, harmless, "the newline at the end carries nothing")
		for n := range data {
			flipped := bytes.Clone(data)
			for change := 1; change < 256; change++ {
				inHeader, oneBit := n <= bytes.IndexByte(data, '\n'), change&(change-1) == 0
				if flipped[n] = data[n] ^ byte(change); inHeader || oneBit || change == 255 {
					check(flipped, "another byte at %d", n)
				}
			}
		}
		require.Less(t, harmless, 100, "the case of the header's keys")
	}
}

// TestStore_OneDamagedRecord_OthersRead: the others stay readable.
func TestStore_OneDamagedRecord_OthersRead(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string][]byte{"empty": nil, "short": []byte(`{"schema":1,`), "no header": []byte("{}\n{}"), "noise": bytes.Repeat([]byte{0xff, '\n'}, 4096)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := newStore(t)
			for i := range 100 {
				require.NoError(t, s.Put(whole(fmt.Sprintf("uid-%02d", i))))
			}
			path := filepath.Join(dir, "claims", "uid-42.json")
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			for again := range 2 {
				records, damaged, err := s.All()
				require.NoError(t, err)
				require.Len(t, records, 99)
				require.Len(t, damaged, 1-again, "reported once")
				if again == 0 {
					require.ErrorIs(t, damaged[0], ErrDamaged)
					require.ErrorContains(t, damaged[0], "uid-42.json was set aside as uid-42.json.damaged")
				}
				for _, r := range records {
					_, err := s.Load(r.Claim.UID)
					require.NoError(t, err)
				}
			}
			_, err := s.Load("uid-42")
			require.ErrorIs(t, err, gpu.ErrNotFound)
			kept, err := os.ReadFile(path + ".damaged")
			require.NoError(t, err)
			assert.Equal(t, string(bad), string(kept))
		})
	}
}

// TestDecode_NewerForm_OwnersKnown: a newer schema may change everything except the keys that every schema keeps.
func TestDecode_NewerForm_OwnersKnown(t *testing.T) {
	t.Parallel()
	body := `{"claim":{"uid":"uid-1","namespace":"default","name":"a"},"state":["done"],"steps":{},"cdi":"x","debt":7,` +
		`"results":[{"gpuUUID":"GPU-1","type":{}},{"gpuUUID":"GPU-2","admin":true}]}`
	_, err := Decode(sealed(schema+1, []byte(body)))
	newer, ok := errors.AsType[*NewerError](err)
	require.True(t, ok, "%v", err)
	require.NotNil(t, newer.Record)
	assert.Equal(t, "uid-1", newer.Record.Claim.UID)
	assert.Equal(t, []gpu.UUID{"GPU-1", "GPU-2"}, newer.Record.GPUs())
	assert.True(t, newer.Record.Results[1].Admin)
	assert.True(t, newer.Record.Newer())
}

// TestStore_OtherFiles_Ignored.
func TestStore_OtherFiles_Ignored(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	claims := filepath.Join(dir, "claims")
	for _, name := range []string{".json", "._uid.json", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(claims, name), []byte("x"), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(claims, "folder.json"), 0o700))
	records, damaged, err := store.All()
	require.NoError(t, err)
	assert.Empty(t, records)
	assert.Empty(t, damaged)
}
