package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refusedConfigs lists parts of the refusals for the files of demo/specs/refused-config.
var refusedConfigs = map[string][]string{
	"two-strategies": {"sharing: timeSlicing and mps are mutually exclusive; remove one of them"},
	"unknown-field":  {`GPUConfig: unknown field "memory"`, "sharing, enforceMemory"},
	"unknown-kind":   {`kind: unsupported value "GpuConfig"`, "GPUConfig, GPUMetricsConfig, ProfilerConfig"},
	"not-supported":  {"ProfilerConfig.tool NsightCompute is not supported by this version of the driver", "NsightSystems"},
}

// migWithInterval requests a MIG device with a setting that only a whole GPU supports.
const migWithInterval = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: mig}, spec: {devices: {
requests: [{name: mig, exactly: {deviceClassName: mig.gpu.prism.dev}}],
config: [{requests: [mig], opaque: {driver: gpu.prism.dev, parameters: {
apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, sharing: {timeSlicing: {interval: Long}}}}}]}}}`

// TestAdmission_InvalidConfig_Refused: the webhook refuses invalid configuration when it is written, and accepts valid configuration.
func TestAdmission_InvalidConfig_Refused(t *testing.T) {
	ns := exclusive(t)
	ns.controllers(t, 1)
	for name, parts := range refusedConfigs {
		err := ns.retryUntilAnswered(func() error {
			_, err := ns.try("create", "--filename", ns.spec(filepath.Join("refused-config", name+".yaml")))
			return err
		}, "pod/"+name, "resourceclaimtemplate/"+name)
		ns.isDenied(name, err, append(parts, `spec.spec.devices.config[0].opaque.parameters: request "gpu": `)...)
		assert.True(t, apierrors.IsNotFound(ns.read(nil, "resourceclaimtemplate", name)), "it is not stored")
	}
	err := ns.retryUntilAnswered(func() error { return ns.createText(migWithInterval) }, "resourceclaim/mig")
	ns.isDenied("mig", err, `spec.devices.config[0].opaque.parameters: request "mig": GPUConfig.sharing with strategy TimeSlicing is not supported for a MIG device`, "supported values: MPS")
	ns.do("apply", "--dry-run=server", "--filename", ns.spec("time-slicing-interval/pod.yaml"))
}

// retryUntilAnswered creates an object that the webhook must validate. On a busy machine the answer may come too late: then the API server
// has stored the object and counts that, and retryUntilAnswered removes the objects and creates them again.
func (ns *namespace) retryUntilAnswered(create func() error, stored ...string) error {
	ns.t.Helper()
	const late = `apiserver_admission_webhook_fail_open_count{name="opaque-config.admission.gpu.prism.dev"`
	count := func() string {
		lines := slices.Collect(strings.Lines(ns.must(ns.t, ns.kubectl("get", "--raw", "/metrics")...)))
		return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, late) }), "")
	}
	for attempts := 5; ; attempts-- {
		before := count()
		err := create()
		if err != nil || attempts == 0 || count() == before {
			return err
		}
		ns.delete(append([]string{"--ignore-not-found"}, stored...)...)
	}
}

// isDenied checks that the API server refused to store something, with a message that contains these parts.
func (ns *namespace) isDenied(what string, err error, parts ...string) {
	ns.t.Helper()
	require.Error(ns.t, err, what)
	ns.t.Log(err)
	for _, part := range append(parts, `admission webhook "opaque-config.admission.gpu.prism.dev" denied the request`) {
		assert.Contains(ns.t, err.Error(), part, what)
	}
}

// TestPrepare_InvalidConfig_Refused: if no controller answers, the API server stores invalid configuration, and the plugin refuses it when
// it prepares the claim.
func TestPrepare_InvalidConfig_Refused(t *testing.T) {
	ns := exclusive(t)
	ns.controllers(t, 0)
	t.Cleanup(func() { ns.controllers(t, 1) })
	ns.apply("refused-config/two-strategies.yaml")
	ns.apply("refused-config/unknown-field.yaml")
	ns.apply("refused-config/unknown-kind.yaml")
	ns.apply("refused-config/not-supported.yaml")
	for name, parts := range refusedConfigs {
		ns.isRefused(name, "gpu", parts...)
	}
}

// controllers scales the controller, and waits until the API server finds the same number of endpoints.
func (c *cluster) controllers(t *testing.T, n int) {
	t.Helper()
	c.must(t, c.kubectl("scale", "--namespace", system, "deployment/"+controllerName, fmt.Sprintf("--replicas=%d", n))...)
	eventually(t, startLimit, func() error {
		var found discoveryapi.EndpointSliceList
		if err := c.get(&found, "endpointslices", "--namespace", system, "--selector", "kubernetes.io/service-name="+controllerName); err != nil {
			return err
		}
		var ready []string
		for _, slice := range found.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
					ready = append(ready, endpoint.Addresses...)
				}
			}
		}
		if len(ready) != n {
			return fmt.Errorf("of %d controllers these answer: %s", n, strings.Join(ready, " "))
		}
		if n == 0 {
			return c.noPods(controllerSelector) // a terminating one still answers on open connections of the API server
		}
		return nil
	})
}

// noPods returns an error while pods of Prism with these labels exist.
func (c *cluster) noPods(selector string) error {
	var pods corev1.PodList
	err := c.get(&pods, "pods", "--namespace", system, "--selector", selector)
	if err == nil && len(pods.Items) > 0 {
		err = fmt.Errorf("%d pods with %s are there", len(pods.Items), selector)
	}
	return err
}
