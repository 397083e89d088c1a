package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestReader_AnyRecord_NothingChanged: it reads concurrently with the plugin, and only the plugin renames damaged records.
func TestReader_AnyRecord_NothingChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reader := Reader{Dir: RecordsDir(dir)}
	_, err := reader.UIDs()
	require.ErrorContains(t, err, "listing the records: ", "before the plugin has made the directory")

	store, err := Open(disk.OS{}, dir)
	require.NoError(t, err)
	require.NoError(t, store.Put(&Record{Claim: Claim{UID: "good"}, State: Done, BootID: "boot"}))
	good, err := os.ReadFile(filepath.Join(reader.Dir, "good.json"))
	require.NoError(t, err)
	later := bytes.Replace(bodyOf(t, &Record{Claim: Claim{UID: "newer"}, State: Done}), []byte(`"done"`), []byte(`"later"`), 1)
	for name, content := range map[string][]byte{
		"damaged.json": good[:len(good)-9], "other.json": good, "newer.json": sealed(schema, later),
		"good.json.tmp": nil, "old.json.damaged": good, ".json": good,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(reader.Dir, name), content, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(reader.Dir, "folder.json"), 0o700))
	before := contents(t, reader.Dir)

	uids, err := reader.UIDs()
	require.NoError(t, err)
	assert.Equal(t, []string{"damaged", "good", "newer", "other"}, uids)
	record, err := reader.Load("good")
	require.NoError(t, err)
	assert.Equal(t, Done, record.State)
	for _, uid := range []string{"damaged", "other"} {
		_, err = reader.Load(uid)
		require.ErrorIs(t, err, ErrDamaged, uid)
	}
	var newer *NewerError
	_, err = reader.Load("newer")
	require.ErrorAs(t, err, &newer)
	for _, uid := range []string{"none", "folder"} {
		_, err = reader.Load(uid)
		require.ErrorIs(t, err, gpu.ErrNotFound, uid)
	}
	_, err = reader.Load("../claims/good")
	require.ErrorContains(t, err, "cannot name a record file")
	assert.Equal(t, before, contents(t, reader.Dir))
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if !entry.IsDir() {
			require.NoError(t, err)
		}
		found[entry.Name()] = string(content)
	}
	return found
}
