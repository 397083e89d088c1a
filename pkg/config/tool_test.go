package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadTool_InvalidValues_Refused(t *testing.T) {
	for argument, want := range map[string]string{
		"--version=../1":        `--version: must be a version such as 2025.5.1, got "../1"`,
		"--path=opt":            `--path: must be an absolute path, got "opt"`,
		"--work-dir=":           `--work-dir: must be an absolute path, got ""`,
		"--import-space=-1":     "--import-space: must be greater than or equal to 0, got -1",
		"--import-memory=0":     "--import-memory: must be greater than 0, got 0",
		"--import-deadline=-1s": "--import-deadline: must be greater than 0, got -1s",
		"--log-format=xml":      `--log-format: unsupported value "xml"; supported values: text, json`,
		"now":                   `unexpected argument "now": only flags are accepted`,
	} {
		_, err := LoadTool([]string{"--version=1", "--path=/opt", argument}, func(string) string { return "" })
		require.EqualError(t, err, want, argument)
	}
	got, err := LoadTool([]string{"--version=1", "--path=/opt", "--versions=1,2"}, func(string) string { return "" })
	require.NoError(t, err)
	assert.Equal(t, []string{"1", "2"}, got.Versions)
	assert.NotEmpty(t, ToolFlags())
}
