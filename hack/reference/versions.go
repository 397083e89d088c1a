package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// capability is a feature of Prism that depends on Kubernetes.
type capability struct {
	feature string
	// since is the first version that supports it by default, such as 1.36 or 1.36.2.
	since string
	// gate is a feature gate of Kubernetes, empty for none.
	gate string
	// without describes the effect on older versions, or with the gate disabled.
	without string
	// tests are end-to-end tests; older are the tests on older versions.
	tests, older []string
}

var capabilities = []capability{
	{"whole GPUs by claim", "1.34", "", "not installable: the API group resource.k8s.io/v1 is required", []string{"TestWholeFromTemplate", "TestWholeTwoGPUs"}, nil},
	{"status of claims: conditions and device data", "1.34", "DRAResourceClaimDeviceStatus", "claims work, without data in their status", []string{"TestWholeFromTemplate"}, nil},
	{
		"names of containers in metrics", "1.34", "KubeletPodResourcesDynamicResources",
		"values name no container; after a minute `/readyz` of the exporter and its log report it, and `prism_exporter_source_up` of `pod_resources` is 0",
		[]string{"TestExporter_WholeGPU_NamesThePod"}, nil,
	},
	{"alternatives: `firstAvailable`", "1.34", "DRAPrioritizedList", "the API server drops the field", []string{"TestMIGStaticDevice"}, nil},
	{"admin access", "1.34", "DRAAdminAccess", "the API server drops the field", []string{"TestWholeAdminSeesGPUsInUse", "TestMonitorSeesPartitionedGPUsInUse"}, nil},
	{"device metadata (KEP-5304)", "1.34", "", "", []string{"TestWholeDeviceMetadata"}, nil},
	{"pods in user namespaces", "1.34", "UserNamespacesSupport", "pods with `hostUsers: false` are not admitted", []string{"TestWholeUserNamespace"}, nil},
	{"DeviceClasses of MIG profiles", "1.34", "", "", []string{"TestMIGProfileClass_NoSelector_PodSeesItsDevice"}, nil},
	{"admission webhook", "1.34", "", "", []string{"TestAdmission_InvalidConfig_Refused"}, nil},
	{
		"GPUs in several modes, MIG devices on demand", "1.36", "DRAPartitionableDevices",
		"each GPU advertises devices that cannot overlap: whole in mode whole, otherwise a fixed set of MIG devices; Event `PartitionableDevicesDisabled`",
		[]string{"TestMIGAndWhole", "TestMIGSevenOnOneGPU"}, []string{"TestMIGDisjoint"},
	},
	{
		"MPS shares, time-sliced shares, shared pre-created MIG devices", "1.36", "DRAConsumableCapacity", "each GPU is allocated to one claim",
		[]string{"TestMPSBySize", "TestTimeSliceShared", "TestMIGStaticDeviceShared"}, nil,
	},
	{
		"shares and another mode on one GPU", "1.36.2", "DRAPartitionableDevices, DRAConsumableCapacity",
		"whole in mode whole, otherwise as shares of one mode; Event `SharedCountersUnsupported`",
		[]string{"TestTimeSliceAndWhole", "TestMPSAndOtherModes_ExcludeEachOther"}, nil,
	},
	{
		"class `by-capacity`, `capacity` in requests", "1.36", "DRAConsumableCapacity", "the chart creates no such class; schedulers ignore the capacity",
		[]string{"TestMIGByCapacity"}, []string{"TestMIGByCapacity_OlderKubernetes_NoClass"},
	},
	{"constraint `distinctAttribute`", "1.36", "DRAConsumableCapacity", "the API server drops the field", []string{"TestTimeSliceSpread", "TestMIGDevice_EveryKindOfRequest_Prepared"}, nil},
	{
		"extended resources: `nvidia.com/gpu` in `resources.limits`", "1.36", "DRAExtendedResource",
		"the API server drops the names of DeviceClasses; Event `ExtendedResourcesUnsupported`",
		[]string{"TestFirstInstall_ResourceLimits_PodRuns", "TestExtendedResourcePod"}, nil,
	},
	{
		"device taints: pending cleanup, layout changes, conflicts, MPS service, device nodes", "1.36", "DRADeviceTaints",
		"taints are dropped: in a conflict the pools of the node are empty; MPS shares are withdrawn while the MPS service does not answer, and the devices of a GPU while a device node is missing; claims for devices with pending cleanup or of a former layout are refused by the plugin", []string{"TestDevicePluginConflict", "TestConfigByLabel"}, []string{"TestDevicePluginConflict"},
	},
	{
		"`kubectl prism defragment`, taints of DeviceTaintRules in `explain`", "1.37", "DRADeviceTaintRules",
		"`defragment` prints no plan; `explain` requires no rules, since the API server has none",
		[]string{"TestDefragment_CommandsRun_PodGetsItsDevice", "TestExplain_DeviceTaintRule_Named"}, nil,
	},
	{
		"granular authorization of `status.devices`", "1.36", "DRAResourceClaimGranularStatusAuthorization",
		"the rights of the plugin on claim status apply to all drivers", []string{"TestWholeFromTemplate"}, nil,
	},
}

// versionsPage is the compatibility table.
func versionsPage(root string) (string, error) {
	versions, err := clusterVersions(root)
	if err != nil {
		return "", err
	}
	out := newText("Kubernetes versions", "hack/reference, checked against the end-to-end tests")
	out.para("Kubernetes 1.34 or later is supported. A feature is enabled by default from the version in the table on, unless its gate is disabled. The end-to-end " +
		"tests run on " + codes(versions) + ": `make e2e KUBERNETES=<version>`. Kubernetes 1.34 is not tested.")
	out.para("The plugin probes which fields the API server stores: at its start, up to a minute after a lost connection, as in every upgrade and rollback, and " +
		"after fields were dropped; at most once in ten minutes, and never without such a reason. GPUs are then advertised accordingly, without a restart: Event " +
		"`ClusterFeaturesChanged`. The API server's version determines which counters a scheduler is assumed to support. If a scheduler is older, such as a second scheduler or one that is upgraded " +
		"later, set the chart value `schedulerVersion` to its version before the API server is upgraded, and remove it after all are upgraded: with a scheduler that does not count " +
		"them, devices of one GPU may be allocated together.")
	t := table{head: []string{"feature", "Kubernetes", "feature gate", "without it", "tested on", "tests"}}
	for _, c := range capabilities {
		tested, tests := on(versions, c.since, true), codes(c.tests)
		if len(c.older) > 0 {
			tests += "; without it " + codes(c.older) + " on " + strings.Join(on(versions, c.since, false), ", ")
		}
		t.row(c.feature, c.since, codes(splitList(c.gate)), c.without, strings.Join(tested, ", "), tests)
	}
	out.table(t)
	preview, err := previewVersion(root)
	if err != nil {
		return "", err
	}
	out.heading("Kubernetes 1.38")
	out.para("Not released yet. `make e2e KUBERNETES=" + preview + "` boots its control plane and kubelet as a preview; `make k8s138` compiles Prism with its libraries " +
		"and runs the tests of published objects. Both need Go 1.27, which the go command downloads; Prism itself is built with Go 1.26 and the libraries of 1.37. " +
		"The module proxy lacks some modules of the preview. `k8s.io/apiextensions-api` consists of its packages in 1.37; instead of " +
		"`sigs.k8s.io/iptables-wrappers` the kubelet finds no iptables and creates no rules; `sigs.k8s.io/structured-merge-diff/v7` is 7.0.0 instead of 7.0.1; " +
		"`k8s.io/ktesting`, which only tests import, is empty.")
	t = table{head: []string{"change in 1.38", "effect on Prism"}}
	for _, c := range changes138 {
		t.row(c[0], c[1])
	}
	out.table(t)
	return out.String(), nil
}

// changes138 are changes of Kubernetes 1.38, and their effect on Prism.
var changes138 = [][2]string{
	{"`resource.k8s.io/v1beta1` is removed", "none: Prism reads and writes only `v1`"},
	{"`DRAPartitionableDevices` and `DRADeviceTaints` are always enabled; `DRAConsumableCapacity` is enabled and can be disabled until 1.39",
		"the column about clusters without them applies to older versions, and to 1.38 with `DRAConsumableCapacity` disabled"},
	{"a request finds a capacity with the driver's domain and without it, for either name in the ResourceSlice",
		"a claim for `gpu.prism.dev/memory` of an MPS share stays Pending before 1.38, and gets a share on 1.38. The plugin and the admission webhook read both names"},
	{"the library that publishes refuses capacities in the driver's own domain by default",
		"capacities that select MIG devices, such as `gpu.prism.dev/p1g10gb`, keep the domain: schedulers of 1.36 and 1.37 compare names as they are written, and without it " +
			"they would match devices of other drivers. They can be published without it when 1.38 is the oldest supported version, schedulers included. Claims keep the domain then, too"},
	{"all claims go to the allocator implementation for stable features", "1.37 uses another one for shares. [Both were measured](../benchmarks.md#the-allocator-of-kubernetes-138): the same CEL expressions, in less time"},
	{"a driver names the versions of device metadata that it writes", "`v1beta1` and `v1alpha1`"},
}

// on returns the versions from a version on, or the versions before it.
func on(versions []string, since string, has bool) []string {
	var out []string
	for _, v := range versions {
		if (slices.Compare(numbers(v), numbers(since)) >= 0) == has {
			out = append(out, v)
		}
	}
	return out
}

func numbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ", ")
}

// previewVersion is the preview version that hack/localcluster runs before its release.
func previewVersion(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, "hack/localcluster/parts/table.go"))
	if err != nil {
		return "", err
	}
	found := previewConstant.FindSubmatch(content)
	if found == nil {
		return "", errors.New("hack/localcluster/parts/table.go names no preview")
	}
	return string(found[1]), nil
}

var (
	previewConstant = regexp.MustCompile(`const PreviewVersion = "([0-9a-z.-]+)"`)
	defaultVersion  = regexp.MustCompile(`const KubernetesVersion = "([0-9.]+)"`)
	otherVersions   = regexp.MustCompile(`var kubernetesVersions = \[\]string\{KubernetesVersion, ([^}]*)\}`)
)

// clusterVersions are the versions that hack/localcluster can run, the newest first. It is a separate module, so its source is parsed.
func clusterVersions(root string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(root, "hack/localcluster/parts/table.go"))
	if err != nil {
		return nil, err
	}
	newest, others := defaultVersion.FindSubmatch(content), otherVersions.FindSubmatch(content)
	if newest == nil || others == nil {
		return nil, fmt.Errorf("hack/localcluster/parts/table.go lists no Kubernetes versions")
	}
	versions := []string{string(newest[1])}
	for _, v := range splitList(string(others[1])) {
		versions = append(versions, strings.Trim(v, `"`))
	}
	return versions, nil
}
