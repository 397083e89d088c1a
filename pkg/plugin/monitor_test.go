package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestPublished_MonitorDevices_DecidesAlone(t *testing.T) {
	for value, want := range map[string]bool{config.MonitorNever: false, config.MonitorPerNode: true} {
		assert.Equal(t, gpu.Additional{Monitor: want}, published(&config.Plugin{MonitorDevices: value}).Additional, value)
	}
}

func TestPublished_PerfmonDevices_DecidesAlone(t *testing.T) {
	for value, want := range map[string]bool{config.PerfmonNever: false, config.PerfmonPerGPU: true} {
		assert.Equal(t, gpu.Additional{Perfmon: want}, published(&config.Plugin{PerfmonDevices: value}).Additional, value)
	}
}
