package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPluginFlags_EveryFlag_HasKeyAndVariable: a flag without a field would set nothing.
func TestPluginFlags_EveryFlag_HasKeyAndVariable(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	for _, f := range PluginFlags() {
		require.NotEmpty(t, f.Env, f.Name)
		if f.Name == "config" {
			assert.Empty(t, f.Key)
			continue
		}
		assert.NotEmpty(t, f.Key, f.Name)
		assert.Empty(t, keys[f.Key], "%s and %s set the same field", keys[f.Key], f.Name)
		keys[f.Key] = f.Name
	}
	assert.Equal(t, "driver-root", keys["driver.root"])
	assert.Equal(t, "fail-on-init-error", keys["driver.failOnInitError"])
	assert.Equal(t, "node-config-fallbacks", keys["nodeConfig.fallbacks"])
}

func TestControllerFlags_Variables_HavePrefix(t *testing.T) {
	t.Parallel()
	for _, f := range ControllerFlags() {
		assert.Regexp(t, "^PRISM_[A-Z_]+$", f.Env[0])
		assert.Empty(t, f.Key)
	}
}
