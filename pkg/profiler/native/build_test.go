package native

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBuild_OtherFolderAndTime_SameFiles: the same sources make the same files, so that they can be compared with what is loaded into processes.
func TestBuild_OtherFolderAndTime_SameFiles(t *testing.T) {
	t.Parallel()
	want := digests(t, programs(t))
	elsewhere := filepath.Join(t.TempDir(), "a folder with another name")
	require.NoError(t, os.CopyFS(elsewhere, os.DirFS(".")))
	out := t.TempDir()
	build := exec.CommandContext(t.Context(), "sh", "-c", `umask 077; exec sh ./build.sh "$0"`, out)
	build.Dir, build.Env = elsewhere, append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=Asia/Tokyo", "SOURCE_DATE_EPOCH=1")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	assert.Equal(t, want, digests(t, out))
}

// digests are those of the files that are built into a folder.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for _, name := range []string{"libprism-inject.so", "prism-run", "prism-proof"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		sums[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return sums
}
