package main

import (
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
	// since is the first version that has it by default, as 1.36 or 1.36.2.
	since string
	// gate is a feature gate of Kubernetes, empty for none.
	gate string
	// without says what happens on older versions, or with the gate off.
	without string
	// tests are end-to-end tests; older are those of older versions.
	tests, older []string
}

var capabilities = []capability{
	{"whole GPUs by claim", "1.34", "", "not installable: the API group resource.k8s.io/v1 is required", []string{"TestWholeFromTemplate", "TestWholeTwoGPUs"}, nil},
	{"status of claims: conditions and device data", "1.34", "DRAResourceClaimDeviceStatus", "claims work; their status has no data", []string{"TestWholeFromTemplate"}, nil},
	{
		"names of containers in metrics", "1.34", "KubeletPodResourcesDynamicResources",
		"values name no container; after a minute `/readyz` of the exporter and its log say so, and `prism_exporter_source_up` of `pod_resources` is 0",
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
		"each GPU advertises devices that cannot overlap: whole in mode whole, else a fixed set of MIG devices; Event `PartitionableDevicesDisabled`",
		[]string{"TestMIGAndWhole", "TestMIGSevenOnOneGPU"}, []string{"TestMIGDisjoint"},
	},
	{
		"MPS shares, time-sliced shares, shared pre-created MIG devices", "1.36", "DRAConsumableCapacity", "each GPU is for one claim",
		[]string{"TestMPSBySize", "TestTimeSliceShared", "TestMIGStaticDeviceShared"}, nil,
	},
	{
		"shares and another mode on one GPU", "1.36.2", "DRAPartitionableDevices, DRAConsumableCapacity",
		"whole in mode whole, else as shares of one mode; Event `SharedCountersUnsupported`",
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
		"device taints: pending cleanup, layout changes, conflicts, MPS service", "1.36", "DRADeviceTaints",
		"taints are dropped: in a conflict the pools of the node are empty; MPS shares are withdrawn while the MPS service does not answer; claims for devices with pending cleanup or of a former layout are refused by the plugin", []string{"TestDevicePluginConflict", "TestConfigByLabel"}, []string{"TestDevicePluginConflict"},
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
	out.para("Kubernetes 1.34 or later is supported. A feature is on by default from the version in the table, where its gate is not turned off. The end-to-end " +
		"tests run on " + codes(versions) + ": `make e2e KUBERNETES=<version>`. Kubernetes 1.34 is not tested.")
	out.para("The plugin probes what the API server stores when it starts, up to a minute after it has lost a connection to it, as in every upgrade and rollback, and " +
		"after fields were dropped; at most once in ten minutes, and never without such a cause. GPUs are then advertised accordingly, without a restart: Event " +
		"`ClusterFeaturesChanged`. What a scheduler counts follows from the API server's version. Where one is older, as a second scheduler or one that is upgraded " +
		"later, set the chart value `schedulerVersion` to its version before the API server is upgraded, and remove it when all are: with a scheduler that does not count " +
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
	return out.String(), nil
}

// on are the versions that have what is there since a version, or those that lack it.
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

var (
	defaultVersion = regexp.MustCompile(`const KubernetesVersion = "([0-9.]+)"`)
	otherVersions  = regexp.MustCompile(`var kubernetesVersions = \[\]string\{KubernetesVersion, ([^}]*)\}`)
)

// clusterVersions are those that hack/localcluster can run, the newest first. It is a module of its own, so its source is read.
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
