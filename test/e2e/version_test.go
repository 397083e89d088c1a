package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// feature is a feature that some versions of Kubernetes in the tests lack. It completes the sentence "Kubernetes 1.35 does not support …".
type feature string

const (
	partitionableDevices feature = "partitionable devices"
	consumableCapacity   feature = "devices for several claims at once"
	extendedResources    feature = "extended resources that claims serve"
	deviceTaints         feature = "device taints"
	deviceTaintRules     feature = "DeviceTaintRules"
)

// features maps each feature to its gate, and to the first minor version that enables the gate by default.
var features = map[feature]struct {
	gate  string
	since int
}{
	partitionableDevices: {"DRAPartitionableDevices", 36},
	consumableCapacity:   {"DRAConsumableCapacity", 36},
	extendedResources:    {"DRAExtendedResource", 36},
	deviceTaints:         {"DRADeviceTaints", 36},
	deviceTaintRules:     {"DRADeviceTaintRules", 37},
}

// needs skips the test if Kubernetes lacks the feature.
func needs(t *testing.T, what feature) {
	t.Helper()
	open(t)
	minor, err := minorVersion()
	require.NoError(t, err)
	if minor < features[what].since {
		t.Skipf("Kubernetes 1.%d does not support %s", minor, what)
	}
}

// minorVersion returns the minor version of the cluster's Kubernetes.
var minorVersion = sync.OnceValues(func() (int, error) {
	c, err := connected()
	if err != nil {
		return 0, err
	}
	out, err := c.run("", c.kubectl("get", "--raw", "/version")...)
	if err != nil {
		return 0, err
	}
	var version struct{ Minor string }
	if err := json.Unmarshal([]byte(out), &version); err != nil {
		return 0, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	return strconv.Atoi(strings.TrimRight(version.Minor, "+"))
})

// failureCount matches the count of the kubelet's failed calls, also if it found no plugin to call. Before 1.36 the kubelet sets the label
// to the opposite of its name.
func failureCount() (*regexp.Regexp, error) {
	minor, err := minorVersion()
	return regexp.MustCompile(fmt.Sprintf(`^dra_operations_duration_seconds_count(\{.*is_error="%t".*\}) (\d+)$`, minor >= 36)), err
}

// TestFeatures_GatesOfServer_AsListed: a wrong entry would skip tests that can run.
func TestFeatures_GatesOfServer_AsListed(t *testing.T) {
	c := open(t)
	minor, err := minorVersion()
	require.NoError(t, err)
	metrics := c.must(t, c.kubectl("get", "--raw", "/metrics")...)
	for name, f := range features {
		enabled := regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="` + f.gate + `",.*\} ([01])$`).FindStringSubmatch(metrics)
		if assert.NotNil(t, enabled, "missing gate %s on the server", f.gate) {
			assert.Equal(t, minor >= f.since, enabled[1] == "1", "Kubernetes 1.%d has %s", minor, name)
		}
	}
}
