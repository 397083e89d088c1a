package helm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n(?s:(.*?))^}\n`)

// TestPromtool_TestsThatUseIt_RunByE2E: they are skipped without promtool, which only hack/e2e.sh builds.
func TestPromtool_TestsThatUseIt_RunByE2E(t *testing.T) {
	script, err := os.ReadFile("../../hack/e2e.sh")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, function := range testFunction.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(function[2], "\tprogram := promtool(t)\n") {
				found++
				assert.Contains(t, string(script), "'^"+function[1]+"$'", "hack/e2e.sh does not run it")
			}
		}
	}
	assert.Equal(t, 4, found)
}
