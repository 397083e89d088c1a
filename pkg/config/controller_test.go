package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadController_FlagAndVariable_FlagWins(t *testing.T) {
	c, err := LoadController([]string{"--lease=mine", "-v=4"}, env(map[string]string{
		"PRISM_NODE_CONFIG_MAP": "prism-system/nodes", "PRISM_NAMESPACE": "prism-system", "PRISM_LEASE": "theirs",
	}))
	require.NoError(t, err)
	assert.Equal(t, &Controller{
		DriverName: "gpu.prism.dev", ConfigMap: "prism-system/nodes", GPUExtendedResource: "Auto", Namespace: "prism-system", Lease: "mine", MetricsEndpoint: ":8080",
		ProbeEndpoint: ":8081", AdmissionEndpoint: ":9443", Logging: Logging{LogVerbosity: 4, LogFormat: "text"}, DeviceClasses: true, AdmissionWebhook: true,
		Reports: Reports{PluginPort: 8444}, KubeAPI: Rate{QPS: 50, Burst: 100},
	}, c)
}

func TestLoadController_InvalidValues_Refused(t *testing.T) {
	good := map[string]string{"PRISM_NODE_CONFIG_MAP": "prism-system/nodes", "PRISM_NAMESPACE": "prism-system"}
	for argument, want := range map[string]string{
		"--driver-name=Bad":       `--driver-name: must be a DNS subdomain of at most 63 characters, got "Bad"`,
		"--node-config-map=nodes": `--node-config-map: must be <namespace>/<name>, got "nodes"`,
		"--namespace=":            "--namespace: required: the namespace of the Lease, which is the namespace of the controller",
		"--lease=A":               `--lease: must be a DNS subdomain, got "A"`,
		"--probe-endpoint=8081":   `--probe-endpoint: must be <address>:<port> or 0, got "8081"`,
		"--log-format=xml":        `--log-format: unsupported value "xml"; supported values: text, json`,
		"--log-verbosity=11":      "--log-verbosity: must be between 0 and 10, got 11",
		"now":                     `unexpected argument "now": only flags are accepted`,

		"--kube-api-qps=0":           "--kube-api-qps: must not be 0 and --kube-api-burst must be greater than or equal to 1, got 0 and 100",
		"--gpu-extended-resource=no": `--gpu-extended-resource: unsupported value "no"; supported values: Auto, Always, Never`,
		"--admission-endpoint=9443":  `--admission-endpoint: must be <address>:<port>, got "9443"`,
		"--reports-certificate=/c": "--plugin-selector: must be a label selector, got \"\"\n" +
			"--reports-certificate: requires --admission-certificate, which the API of reports uses",
		"--admission-endpoint=:https": `--admission-endpoint: must be <address>:<port>, got ":https"`,
	} {
		_, err := LoadController([]string{argument}, env(good))
		assert.EqualError(t, err, want, argument)
	}
}
