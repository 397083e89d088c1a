package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
	commandLine  = regexp.MustCompile(`(?m)^\$ (.*)$`)
	headline     = regexp.MustCompile(`(?m)^# (.*)$`)
	saying       = regexp.MustCompile(`(?m)^\s*say "(.*)"$`)
)

// TestREADME_Quickstart_IsWhatTheDemoPrints: the first command is make demo, and its output shows the headlines of the script.
func TestREADME_Quickstart_IsWhatTheDemoPrints(t *testing.T) {
	root := rootOf(t)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(readme), "\n"), 150, "lines of README.md")
	blocks := consoleBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	quickstart := blocks[0][1]
	commands := commandLine.FindAllStringSubmatch(quickstart, -1)
	assert.Equal(t, "make demo", commands[0][1])
	assert.Equal(t, "make test", commands[len(commands)-1][1])

	script, err := os.ReadFile(filepath.Join(root, "demo/demo.sh"))
	require.NoError(t, err)
	var said []string
	for _, line := range saying.FindAllStringSubmatch(string(script), -1) {
		said = append(said, strings.ReplaceAll(line[1], "$MODEL", "h100-80"))
	}
	var shown []string
	for _, line := range headline.FindAllStringSubmatch(quickstart, -1) {
		shown = append(shown, line[1])
	}
	assert.Equal(t, said, shown, "README.md shows other headlines than demo/demo.sh prints")
}
