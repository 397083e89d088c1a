package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/config"
)

func TestPublished_MonitorDevices_DecidesAlone(t *testing.T) {
	for value, want := range map[string]bool{config.MonitorNever: false, config.MonitorPerNode: true} {
		p := &program{cfg: &config.Plugin{MonitorDevices: value}}
		assert.Equal(t, want, p.published().Monitor, value)
	}
}
