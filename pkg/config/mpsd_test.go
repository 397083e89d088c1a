package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadMPSD_FlagsAndEnvironment_FlagsTakePrecedence(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PRISM_DRIVER_NAME": "gpu.example.com", "PRISM_LOG_FORMAT": "json"}
	m, err := LoadMPSD([]string{"--host-root=/", "-v=4", "--log-format=text", "--nvidia-driver-root=/run/nvidia/driver"}, func(name string) string { return env[name] })
	require.NoError(t, err)
	assert.Equal(t, &MPSD{
		DriverName: "gpu.example.com", HostRoot: "/", DriverRoot: "/run/nvidia/driver", RunDir: "/run/gpu.example.com", Hardening: "Mounts", Logging: Logging{LogVerbosity: 4, LogFormat: "text"},
	}, m)
	assert.Equal(t, "/run/gpu.example.com/mpsd.sock", m.Socket())
	assert.Equal(t, "/run/gpu.example.com/mps", m.DaemonsDir())
	assert.Len(t, MPSDFlags(), 8)
}

func TestLoadMPSD_InvalidValues_AllReported(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	_, err := LoadMPSD([]string{"--driver-name=A", "--host-root=x", "--run-dir=y", "--nvidia-driver-root=z", "--driver-search-dirs=lib", "-v=11", "--log-format=xml", "--hardening=full"}, none)
	require.EqualError(t, err, `--driver-name: must be a DNS subdomain of at most 63 characters, got "A"
--driver-search-dirs: must be absolute paths without colons, got "lib"
--hardening: unsupported value "full"; supported values: Full, Mounts, None
--host-root: must be an absolute path, got "x"
--log-format: unsupported value "xml"; supported values: text, json
--log-verbosity: must be between 0 and 10, got 11
--nvidia-driver-root: must be an absolute path of the host, got "z"
--run-dir: must be an absolute path, got "y"`)
	_, err = LoadMPSD([]string{"serve"}, none)
	require.EqualError(t, err, `unexpected argument "serve": only flags are accepted`)
	_, err = LoadMPSD([]string{"--unknown"}, none)
	require.Error(t, err)
	_, err = LoadMPSD(nil, func(name string) string { return map[string]string{"PRISM_LOG_VERBOSITY": "x"}[name] })
	require.ErrorContains(t, err, "environment variable PRISM_LOG_VERBOSITY=\"x\"")
}
