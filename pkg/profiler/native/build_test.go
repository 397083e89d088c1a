package native

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBuild_OtherFolderAndTime_SameFiles: the same sources build the same files, so that they can be compared with the files that are
// loaded into processes.
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

// TestBuild_Arm64_Compiles: with the compiler that hack/arm64.sh fetches, as make unit does.
func TestBuild_Arm64_Compiles(t *testing.T) {
	t.Parallel()
	compiler := os.Getenv("PATTERN_ARM64_CC")
	if compiler == "" {
		t.Skip("needs PATTERN_ARM64_CC, see hack/arm64.sh")
	}
	// The headers and libraries of the compiler's package are in the directory of the unpacked package.
	root := filepath.Dir(filepath.Dir(filepath.Dir(compiler[strings.LastIndex(compiler, " ")+1:])))
	out := t.TempDir()
	wrapped := filepath.Join(out, "cc")
	script := "#!/bin/sh\nexec " + compiler + " --sysroot=" + root + " -isystem " + root + "/usr/aarch64-linux-gnu/include" + ` "$@"` + "\n"
	require.NoError(t, os.WriteFile(wrapped, []byte(script), 0o755))
	sources, err := filepath.Glob("run/*.c")
	require.NoError(t, err)
	for _, source := range append(sources, "inject/inject.c") {
		arguments := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-mbranch-protection=standard", "-Os", "-D_GNU_SOURCE", "-c"}
		if source == "inject/inject.c" {
			arguments = append(arguments, "-fPIC", "-ffreestanding")
		}
		output, err := exec.CommandContext(t.Context(), wrapped, append(arguments, "-o", filepath.Join(out, "object"), source)...).CombinedOutput()
		require.NoError(t, err, string(output))
	}
}

// digests returns the digests of the files that are built into a folder.
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
