package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/config"
)

func TestPublished_MonitorDevices_DecidesAlone(t *testing.T) {
	for value, want := range map[string]bool{config.MonitorNever: false, config.MonitorPerNode: true} {
		assert.Equal(t, want, published(&config.Plugin{MonitorDevices: value}).Monitor, value)
	}
}
