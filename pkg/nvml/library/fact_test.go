package library

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestFacts_Documented_EachInItsRow: docs/boards.md shows the table.
func TestFacts_Documented_EachInItsRow(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/boards.md")
	require.NoError(t, err)
	rows := strings.Count(string(page), "\n| `nvml")
	assert.Equal(t, len(Facts), rows)
	for _, f := range Facts {
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", f.Symbol, f.Need, f.Without, f.Lacking)
		assert.Contains(t, strings.Split(string(page), "\n"), row)
	}
}

func TestAbsent_EachNeed_ByError(t *testing.T) {
	t.Parallel()
	unsupported, open := &gpu.UnsupportedError{Feature: "x"}, errors.New("NVML UNKNOWN")
	for symbol, want := range map[string][2]bool{ // whether a GPU is usable without the answer: not supported, unknown
		"nvmlDeviceGetUUID": {false, false}, "nvmlDeviceGetPerformanceState": {true, false}, "nvmlDeviceGetMigMode": {true, false},
		"nvmlDeviceGetMemoryInfo": {true, true}, "nvmlDeviceGetName": {true, true}, "nvmlDeviceGetGpuInstances": {true, false},
	} {
		absent, later := Absent(t.Context(), symbol, unsupported)
		assert.Equal(t, want[0], absent, symbol)
		assert.False(t, later && absent, symbol)
		absent, later = Absent(t.Context(), symbol, open)
		assert.Equal(t, want[1], absent, symbol)
		assert.Equal(t, want[1], later && absent, symbol)
		absent, _ = Absent(t.Context(), symbol, nil)
		assert.False(t, absent, symbol)
		for _, fatal := range []error{gpu.ErrLost, gpu.ErrTimeout, gpu.ErrDriverNotLoaded} {
			absent, _ = Absent(t.Context(), symbol, fmt.Errorf("x: %w", fatal))
			assert.False(t, absent, "%s: %v", symbol, fatal)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		absent, _ = Absent(over, symbol, open)
		assert.False(t, absent, symbol)
	}
}
