package disk

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMirror_Differs_Copied(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("0123456789abcdef"), 10_000) // longer than the part that is compared at once
	changed := bytes.Clone(long)
	changed[len(changed)-1] = 'x'
	for name, present := range map[string][]byte{
		"absent": nil, "empty": {}, "shorter": long[:len(long)-1], "longer": append(bytes.Clone(long), 'x'), "changed": changed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			require.NoError(t, os.WriteFile(from, long, 0o600))
			if present != nil {
				require.NoError(t, os.WriteFile(to, present, 0o600))
			}
			require.NoError(t, OS{}.Mirror(from, to, 0o755))
			content, err := os.ReadFile(to)
			require.NoError(t, err)
			assert.Equal(t, long, content)
			info, err := os.Stat(to)
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
			assert.NoFileExists(t, to+TempSuffix)
		})
	}
}

func TestMirror_Same_NotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	require.NoError(t, os.WriteFile(from, bytes.Repeat([]byte("x"), 128<<10), 0o600)) // a whole number of chunks
	require.NoError(t, OS{}.Mirror(from, to, 0o755))
	before, err := os.Stat(to)
	require.NoError(t, err)
	require.NoError(t, OS{}.Mirror(from, to, 0o755))
	after, err := os.Stat(to)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "a program that may run is not replaced by the same")
}

// TestMirror_OtherPermissions_Corrected: neither a copy nor an unfinished copy after a crash keeps the permissions of a stricter umask.
func TestMirror_OtherPermissions_Corrected(t *testing.T) {
	t.Parallel()
	for name, present := range map[string]string{"the same": "to", "half-written": "to" + TempSuffix} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			require.NoError(t, os.WriteFile(from, []byte("program"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, present), []byte("program"), 0o600))
			require.NoError(t, OS{}.Mirror(from, to, 0o755))
			info, err := os.Stat(to)
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
		})
	}
}

func TestMirror_Absent_ErrNotExist(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "to")
	require.ErrorIs(t, OS{}.Mirror("/does/not/exist", to, 0o755), fs.ErrNotExist)
	assert.NoFileExists(t, to)
}
