package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStore_UnfinishedRecords_FoundAndDiscarded(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	require.NoError(t, s.Put(whole("kept")))
	for _, name := range []string{"kept.json.tmp", "died.json.tmp", ".json.tmp", "..json.tmp", "notes.tmp", "bad.json.damaged"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "claims", name), []byte("{"), 0o600))
	}
	uids, err := s.Unfinished()
	require.NoError(t, err)
	assert.Equal(t, []string{"died", "kept"}, uids, "what can be a claim's")
	for _, uid := range append(uids, "died") {
		require.NoError(t, s.Discard(uid))
	}
	uids, err = s.Unfinished()
	require.NoError(t, err)
	assert.Empty(t, uids)
	_, err = s.Load("kept")
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "claims", "notes.tmp"))
	require.ErrorContains(t, s.Discard("../x"), "cannot name a record file")
}
