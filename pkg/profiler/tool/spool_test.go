package tool

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSpool_UnfinishedFiles_RemovedAtStart: those of this version's claims, by a name that the store does not remove while they are written.
func TestSpool_UnfinishedFiles_RemovedAtStart(t *testing.T) {
	t.Parallel()
	s, folder, _ := spool(t, nil, func(string) error { return nil })
	left := filepath.Join(folder, unfinishedPrefix+"a.nsys-rep")
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	s.Version = "2"
	require.NoError(t, s.clean())
	assert.FileExists(t, left, "the importer of version 1 may be writing it")
	s.Version = "1"
	require.NoError(t, s.clean())
	assert.NoFileExists(t, left)
}
