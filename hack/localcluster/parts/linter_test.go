package parts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// project is the folder of the project's go.mod.
const project = "../../.."

// fakeInstall is a go command that installs an empty linter.
const fakeInstall = `#!/bin/sh
if [ "$1" = env ]; then echo go1.26.0; exit; fi
echo "$*" >>"$FAKE_GO"
case $* in *-n*) exit ;; esac
: >"$GOBIN/golangci-lint" && chmod 755 "$GOBIN/golangci-lint"
`

// TestLinter_EarlierRunKilled_BuiltAndCleared: the linter is built into the same cache as the parts, and leftovers of a killed build are
// removed.
func TestLinter_EarlierRunKilled_BuiltAndCleared(t *testing.T) {
	_, calls := newCache(t, fakeInstall)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	half := filepath.Join(cache, "prism", "bin", ".build-AbCdEf", "b001")
	require.NoError(t, os.MkdirAll(half, 0o755))
	linter := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(project, "hack", "golangci-lint.sh"), args...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	assert.Empty(t, linter("fetch"))
	assert.DirExists(t, half, "a download does not touch a build")
	program := linter()
	assert.FileExists(t, program)
	left, err := filepath.Glob(filepath.Join(cache, "prism", "bin", ".build-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.FileExists(t, filepath.Join(cache, "prism", "durations", "golangci-lint"))

	assert.Equal(t, program, linter())
	assert.Empty(t, linter("fetch"))
	text, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "install "), "downloaded once and built once")
}
