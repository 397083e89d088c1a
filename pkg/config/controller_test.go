package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestControllerFlagsWinOverEnvironment(t *testing.T) {
	c, err := LoadController([]string{"--lease=mine", "-v=4"}, env(map[string]string{
		"PRISM_NODE_CONFIG_MAP": "prism-system/nodes", "PRISM_NAMESPACE": "prism-system", "PRISM_LEASE": "theirs",
	}))
	require.NoError(t, err)
	assert.Equal(t, &Controller{
		DriverName: "gpu.prism.dev", ConfigMap: "prism-system/nodes", GPUExtendedResource: "Auto", Namespace: "prism-system", Lease: "mine", MetricsEndpoint: ":8080",
		ProbeEndpoint: ":8081", AdmissionEndpoint: ":9443", LogVerbosity: 4, LogFormat: "text",
	}, c)
}

func TestControllerRefuses(t *testing.T) {
	good := map[string]string{"PRISM_NODE_CONFIG_MAP": "prism-system/nodes", "PRISM_NAMESPACE": "prism-system"}
	for argument, want := range map[string]string{
		"--driver-name=Bad":       `--driver-name: "Bad" is not a DNS subdomain of at most 63 characters`,
		"--node-config-map=nodes": `--node-config-map: "nodes" is not <namespace>/<name>`,
		"--namespace=":            "--namespace: is empty; set it to the namespace of the Lease, which is the controller's own",
		"--lease=A":               `--lease: "A" is not a DNS subdomain`,
		"--probe-endpoint=8081":   `--probe-endpoint: "8081" is not <address>:<port>, nor 0`,
		"--log-format=xml":        `--log-format: "xml" is neither text nor json`,
		"--log-verbosity=11":      "--log-verbosity: 11 is not in 0..10",
		"now":                     `unexpected argument "now": there are only flags`,

		"--gpu-extended-resource=no":  `--gpu-extended-resource: unsupported value "no"; supported values: Auto, Always, Never`,
		"--admission-endpoint=9443":   `--admission-endpoint: "9443" is not <address>:<port>`,
		"--admission-endpoint=:https": `--admission-endpoint: ":https" is not <address>:<port>`,
	} {
		_, err := LoadController([]string{argument}, env(good))
		assert.EqualError(t, err, want, argument)
	}
}
