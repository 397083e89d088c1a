package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestFollow_OtherProcessStores_NothingLost: a process that takes over was opened before the other one stored a report.
func TestFollow_OtherProcessStores_NothingLost(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "profiles")
	require.NoError(t, disk.OS{}.MakeDir(dir, 0o755))
	open := func(follow bool) *Store {
		s, err := Open(Options{Dir: dir, Files: disk.OS{}, Follow: follow})
		require.NoError(t, err)
		return s
	}
	first := open(false)
	claim := Claim{UID: "uid-1", Namespace: "ns", Name: "a", Node: "n0"}
	require.NoError(t, first.Prepare(claim, nil))
	require.NoError(t, first.sync(claim.UID))
	unfinished := filepath.Join(dir, claim.UID, reportsDir, newPrefix+"x")
	require.NoError(t, os.WriteFile(unfinished, nil, 0o600))
	second := open(true)
	stored := report.Report{ID: "uid-1-s1", ClaimUID: claim.UID, Namespace: "ns", State: report.Lost}
	first.put(stored)
	require.NoError(t, first.flush(claim.UID))

	require.NoError(t, second.Release(claim.UID))
	require.ErrorIs(t, second.Delete("uid-1", "none", report.Deletion{}), fs.ErrNotExist, "it does not know the report yet")
	claim.Tool = "2023.4.4"
	require.NoError(t, second.Prepare(claim, nil), "the claim was prepared again")
	other := Claim{UID: "uid-2", Namespace: "ns", Name: "b", Node: "n0"}
	require.NoError(t, second.Prepare(other, nil))

	assert.FileExists(t, unfinished, "the other process is writing it")
	require.NoError(t, second.Lead())
	assert.NoFileExists(t, unfinished)
	require.Len(t, second.List("", ""), 1, "the report that the other process stored")
	assert.NotNil(t, second.claims[other.UID])
	assert.Equal(t, "2023.4.4", second.claims[claim.UID].Claim.Tool)
	require.NoError(t, second.Delete(claim.UID, stored.ID, report.Deletion{}))
	assert.Empty(t, open(true).List("", ""))
}
