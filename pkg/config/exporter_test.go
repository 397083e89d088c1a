package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadExporter_FlagEnvironmentFile_InThisPrecedence(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "exporter.yaml")
	require.NoError(t, os.WriteFile(file, []byte("driverName: gpu.example.com\nsampling: {interval: 5s, minInterval: 500ms, sets: [Basic, ECC]}\notlpEndpoint: http://one/v1/metrics\n"), 0o600))
	env := map[string]string{"PRISM_CONFIG": file, "PRISM_INTERVAL": "3s", "PRISM_LOG_FORMAT": "json", "NODE_NAME": "n0", "PRISM_OTLP_ENDPOINT": "http://two/v1/metrics"}
	e, err := LoadExporter([]string{"--interval=2s", "--host-root=/"}, func(name string) string { return env[name] })
	require.NoError(t, err)
	assert.Equal(t, "gpu.example.com", e.DriverName)
	assert.Equal(t, 2*time.Second, e.Sampling.Interval.Duration)
	assert.Equal(t, 500*time.Millisecond, e.Sampling.MinInterval.Duration)
	assert.Equal(t, Names{"Basic", "ECC"}, e.Sampling.Sets)
	assert.Equal(t, "http://two/v1/metrics", e.OTLPEndpoint)
	assert.Equal(t, "n0", e.NodeName)
	assert.Equal(t, "json", e.Serving.LogFormat)
	assert.Equal(t, "/run/gpu.example.com/metrics", e.ClaimsDir())
	assert.Equal(t, "/var/lib/kubelet/plugins/gpu.example.com", e.PluginDir())
}

func TestLoadExporter_NoFlags_DefaultsOfChart(t *testing.T) {
	t.Parallel()
	e, err := LoadExporter(nil, func(string) string { return "" })
	require.NoError(t, err)
	assert.Equal(t, ":9400", e.Serving.HTTPEndpoint)
	assert.Equal(t, ":9401", e.ProbeEndpoint, "clients of the pages cannot keep the kubelet out")
	assert.Equal(t, 10*time.Second, e.Sampling.Interval.Duration)
	assert.Equal(t, time.Second, e.Sampling.MinInterval.Duration)
	for _, flag := range ExporterFlags() {
		if flag.Name != "config" {
			assert.NotEmpty(t, flag.Key, "--%s is in no configuration file", flag.Name)
		}
	}
}

func TestLoadExporter_InvalidValues_AllReported(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	_, err := LoadExporter([]string{
		"--driver-name=A", "--host-root=x", "--run-dir=y", "--driver-root=z", "--driver-search-dirs=/a:/b", "--cri-socket=c", "--counters=f", "--web-config-file=w", "-v=11", "--log-format=xml",
		"--http-endpoint=9400", "--probe-endpoint=9401", "--otlp-endpoint=collector:4317", "--interval=500ms", "--min-interval=1ms", "--sets=All",
		"--kubelet-plugins-dir=p", "--kubelet-pod-resources-socket=s", "--pod-label-keys=app,-x,a/b/c" + strings.Repeat(",app", 14),
	}, none)
	require.EqualError(t, err, `--counters: must be an absolute path, got "f"
--cri-socket: must be an absolute path of the host, got "c"
--driver-name: must be a DNS subdomain of at most 63 characters, got "A"
--driver-root: must be an absolute path of the host, got "z"
--driver-search-dirs: must be absolute paths without colons, got "/a:/b"
--host-root: must be an absolute path, got "x"
--http-endpoint: must be <address>:<port>, got "9400"
--kubelet-plugins-dir: must be an absolute path, got "p"
--kubelet-pod-resources-socket: must be an absolute path, got "s"
--log-format: unsupported value "xml"; supported values: text, json
--log-verbosity: must be between 0 and 10, got 11
--min-interval: must be between 100ms and 10m0s, got 1ms
--otlp-endpoint: must be a URL such as http://collector:4318/v1/metrics, got "collector:4317"
--pod-label-keys: must be at most 16 keys, got 17
--pod-label-keys: must be label keys such as app.kubernetes.io/name, got "-x"
--pod-label-keys: must be label keys such as app.kubernetes.io/name, got "a/b/c"
--probe-endpoint: must be <address>:<port>, got "9401"
--run-dir: must be an absolute path, got "y"
--sets: unsupported value "All"; supported values: Basic, Utilization, Memory, Power, Clocks, PCIe, NVLink, ECC, Throttle, Processes, Pipelines
--web-config-file: must be an absolute path, got "w"`)
	for _, endpoint := range []string{
		"http://user:secret@collector:4318", "grpc://user:secret@collector:4317", "http://secret@collector", "http://user:sec%ret@collector",
		"http://collector:secret", "http://collector/v1/metrics?key=secret", "user:secret@collector", "http://secret@[::1", "http://[secret",
		"http://collector:4318\x7fsecret", "://secret",
	} {
		_, err = LoadExporter([]string{"--otlp-endpoint=" + endpoint}, none)
		require.ErrorContains(t, err, "--otlp-endpoint: must be a URL such as http://collector:4318/v1/metrics", endpoint)
		assert.NotContains(t, err.Error(), "sec", endpoint)
	}
	_, err = LoadExporter([]string{"--interval=500ms"}, none)
	require.EqualError(t, err, "--interval: must be between --min-interval, 1s, and 10m0s, got 500ms")
	_, err = LoadExporter([]string{"serve"}, none)
	require.EqualError(t, err, `unexpected argument "serve": only flags are accepted`)
	_, err = LoadExporter([]string{"--config=/no/such/file"}, none)
	require.EqualError(t, err, "--config: file not found: /no/such/file")
}
