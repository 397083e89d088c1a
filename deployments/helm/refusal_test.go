package helm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChartSchema_InvalidValue_RefusedByName sets one invalid value each; the error must name it.
func TestChartSchema_InvalidValue_RefusedByName(t *testing.T) {
	for value, want := range map[string]string{
		"driverName=Bad_Name":                                   "at '/driverName': 'Bad_Name' does not match pattern",
		"driverName=":                                           "at '/driverName'",
		"driverName=null":                                       "missing property 'driverName'",
		"drivername=gpu.example.com":                            "additional properties 'drivername' not allowed",
		"image.repo=x":                                          "at '/image': additional properties 'repo' not allowed",
		"image.pullPolicy=Sometimes":                            "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
		"nvidiaDriverRoot=run/nvidia/driver":                    "at '/nvidiaDriverRoot': 'run/nvidia/driver' does not match pattern",
		"nvidiaSearchDirs={lib}":                                "at '/nvidiaSearchDirs/0'",
		"nvidiaCDIHook=nothing":                                 "at '/nvidiaCDIHook'",
		"nvidiaCDIHook=nvidia-cdi-hook":                         "at '/nvidiaCDIHook'",
		"nvidiaCDIHook=hosts":                                   "at '/nvidiaCDIHook'",
		"kubeletRoot=/a/../b":                                   "at '/kubeletRoot': '/a/../b' does not match pattern",
		"cdiRoot=/":                                             "at '/cdiRoot': '/' does not match pattern",
		"stateDir=prism":                                        "at '/stateDir': 'prism' does not match pattern",
		"failOnInitError=maybe":                                 "at '/failOnInitError': got string, want null or boolean",
		"logVerbosity=99":                                       "at '/logVerbosity': maximum: got 99, want 10",
		"logFormat=xml":                                         "at '/logFormat': value must be one of 'text', 'json'",
		"kubeAPI.qps=0":                                         "at '/kubeAPI/qps'",
		"kubeletPlugin.updateStrategy.type=Replace":             "at '/kubeletPlugin/updateStrategy/type': value must be one of",
		"kubeletPlugin.tolerations=all":                         "at '/kubeletPlugin/tolerations': got string, want array",
		"deviceClasses.gpu.extendedResourceName=gpu":            "at '/deviceClasses/gpu/extendedResourceName': 'gpu' does not match pattern",
		"deviceClasses.mig.extendedResources={1g.10gb.me}":      "at '/deviceClasses/mig/extendedResources/0': '1g.10gb.me' does not match pattern",
		"deviceClasses.mig.extendedResources={1c.3g.40gb}":      "at '/deviceClasses/mig/extendedResources/0': '1c.3g.40gb' does not match pattern",
		"deviceClasses.mig.extendedResources={2g.20gb,2g.20gb}": "at '/deviceClasses/mig/extendedResources': items at 0 and 1 are equal",
		"config=null":                                           "missing property 'config'",
		"config.map.a=1":                                        "at '/config/map/a': got number, want string or object",
		"config.map.a/b.kind=x":                                 "at '/config/map': additional properties 'a/b' not allowed",
		"config.name=Nodes":                                     "at '/config/name': 'Nodes' does not match pattern",
		"config.default=a":                                      `config.default is "a" and there is no configuration: set config.map or config.name`,
		"config.map.a=x,config.map.b=x":                         "config.map has several entries and none is called default: set config.default to one of them, or add empty to config.fallbackStrategies: a, b",
		"config.fallbackStrategies={first}":                     "at '/config/fallbackStrategies/0': value must be one of 'named', 'single', 'empty'",
		"config.nodeLabel=":                                     "at '/config/nodeLabel': '' does not match pattern",
		"config.map.a=x,config.map.b=x,config.default=c":        `config.default is "c", which config.map does not have; it has: a, b`,
		"config.map.a=x,config.name=nodes":                      "config.map and config.name are both set: keep map for a ConfigMap of the chart, or name for one that exists",
		"image.digest=sha256:abc":                               "at '/image/digest': 'sha256:abc' does not match pattern",
		"controller.gpuExtendedResource=Sometimes":              "at '/controller/gpuExtendedResource': value must be one of 'Auto', 'Always', 'Never'",
		"resourceQuota.pods=0":                                  "at '/resourceQuota/pods': minimum: got 0, want 1",
		"openshift.scc=privileged":                              "at '/openshift': additional properties 'scc' not allowed",
		"controller.replicas=9":                                 "at '/controller/replicas': maximum: got 9, want 5",
		"controller.image=x":                                    "at '/controller': additional properties 'image' not allowed",
		"deviceClasses.perfmonDevices=PerNode":                  "at '/deviceClasses/perfmonDevices': value must be one of 'Never', 'PerGPU'",
		"health.xids.0=Taint":                                   "at '/health/xids': additional properties '0' not allowed",
		"health.xids.1000=Taint":                                "at '/health/xids': additional properties '1000' not allowed",
		"health.xids.79=taint":                                  "at '/health/xids/79': value must be one of 'Taint', 'Ignore'",
		"health.noExecute={unmonitored}":                        "at '/health/noExecute/0': value must be one of 'gpu-lost', 'recovery-action', 'xid'",
		"health.nodeConditions={a/b}":                           "at '/health/nodeConditions/0': 'a/b' does not match pattern",
		"metrics.podMonitor.interval=30":                        "at '/metrics/podMonitor/interval': got number, want string",
		"serviceAccount.create=false":                           "serviceAccount.create is false: set serviceAccount.name to an account that exists",

		"mps.enabled=yes":                   "at '/mps/enabled': got string, want boolean",
		"mps.userID=nobody":                 "at '/mps/userID': got string, want null or integer",
		"mps.resources.limits.memory=256Mi": "at '/mps/resources': additional properties 'limits' not allowed",
		"mps.updateStrategy.type=OnDelete":  "at '/mps': additional properties 'updateStrategy' not allowed",
		"mps.resources=null":                "missing property 'resources'",

		"exporter.podLabelKeys={a/b/c}":                             "at '/exporter/podLabelKeys/0': 'a/b/c' does not match pattern",
		"exporter.podLabelKeys={app,app}":                           "at '/exporter/podLabelKeys': items at 0 and 1 are equal",
		"exporter.podLabelKeys={a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q}": "at '/exporter/podLabelKeys': maxItems: got 17, want 16",

		"controller.admission.port=8081":                             "at '/controller/admission/port': 'not' failed",
		"controller.admission.certificate.caBundle=x,config.map.a=x": "controller.admission.certificate.caBundle is set without secretName",
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			rendered, complaint, err := template(t, "--set", value)
			require.Error(t, err, rendered)
			require.Contains(t, complaint, want)
		})
	}
}

func TestChart_OldKubernetes_Refused(t *testing.T) {
	_, complaint, err := template(t, "--kube-version", "1.33.9")
	require.Error(t, err)
	require.Contains(t, complaint, "chart requires kubeVersion: >=1.34.0-0 which is incompatible with Kubernetes v1.33.9")
	render(t, "--kube-version", "v1.34.0-gke.100")
}
