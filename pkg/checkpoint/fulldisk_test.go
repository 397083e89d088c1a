package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
)

// fullDisk is the real disk without space for another file.
type fullDisk struct{ disk.OS }

func (fullDisk) Write(string, []byte, fs.FileMode, bool) error { return syscall.ENOSPC }

// TestPut_FullDisk_ReleasingReplacesInPlace for records of any length, but for no other state.
func TestPut_FullDisk_ReleasingReplacesInPlace(t *testing.T) {
	for _, cause := range []string{"", strings.Repeat("the GPU does not answer ", 100)} {
		dir := t.TempDir()
		s, err := Open(disk.OS{}, dir)
		require.NoError(t, err)
		r := &Record{Claim: Claim{UID: "a", Namespace: "default", Name: "a"}, BootID: "boot", State: Done, Results: []Result{{Request: "r"}}, CDI: CDI{Devices: []string{"d"}}}
		require.NoError(t, s.Put(r))
		full, err := Open(fullDisk{}, dir)
		require.NoError(t, err)
		require.ErrorIs(t, full.Put(r), syscall.ENOSPC)

		r.State = Releasing
		if cause == "" {
			r.Results[0].Request, r.Results, r.CDI.Devices = "", nil, nil // shorter
		} else {
			r.PendingCleanup = &PendingCleanup{Cause: cause}
		}
		require.NoError(t, full.Put(r))
		loaded, err := s.Load("a")
		require.NoError(t, err)
		require.Equal(t, Releasing, loaded.State)
		names, err := os.ReadDir(filepath.Join(dir, "claims"))
		require.NoError(t, err)
		require.Len(t, names, 1)
	}
}

// TestPut_FullDiskWithoutRecord_Error: no record exists that could be replaced.
func TestPut_FullDiskWithoutRecord_Error(t *testing.T) {
	s, err := Open(fullDisk{}, t.TempDir())
	require.NoError(t, err)
	require.ErrorIs(t, s.Put(&Record{Claim: Claim{UID: "a"}, State: Releasing}), syscall.ENOSPC)
}
