package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

const claimUID = "6f0c1d2e-0000-4000-8000-00000000000a"

// rulesMap is the ConfigMap with the rules of the cluster.
func rulesMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rules"}, Data: map[string]string{rules.Key: text}}
}

// profilingNode is a node that profiles by these rules, with Nsight Systems of these versions.
func profilingNode(t *testing.T, rules string, versions ...string) *wired {
	t.Helper()
	n := newWired(t)
	n.cfg.Profiler = config.Profiler{Enabled: true, Map: "ns/rules"}
	n.cfg.Paths.StateDir = t.TempDir()
	image := t.TempDir()
	n.adapters.ImageDir, n.adapters.OwnHookImage = image, filepath.Join(image, cdi.OwnHookName)
	for _, program := range []string{cdi.OwnHookName, profiler.Library, profiler.Run} {
		require.NoError(t, os.WriteFile(filepath.Join(image, program), []byte(program), 0o755))
	}
	n.adapters.Host = filesHost{n.adapters.Host}
	_, err := n.client.CoreV1().ConfigMaps("ns").Create(t.Context(), rulesMap(rules), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, version := range versions {
		install(t, n.cfg, version, `"2026-11-20T00:00:00Z"`)
	}
	return n
}

// filesHost is a host whose files are this machine's.
type filesHost struct{ Host }

func (filesHost) Locate(root, path string) (string, bool) {
	_, err := os.Stat(filepath.Join(root, path))
	return path, err == nil
}

// install makes the manifest of a version.
func install(t *testing.T, cfg *config.Plugin, version, proven string) {
	t.Helper()
	dir := filepath.Join(cfg.ToolsDir(), version+"-0123")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "target-linux-x64"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "importer/host-linux-x64"), 0o755))
	switches := `["--kill","--wait","--trace","--sample","--cpuctxsw","--duration"]`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"),
		[]byte(`{"schema":1,"version":"`+version+`","nsys":"target-linux-x64/nsys","importer":"importer/host-linux-x64","switches":`+switches+`,"proven":`+proven+`}`), 0o644))
}

// profiledClaim is a claim for the first GPU with that ProfilerConfig; empty: without one.
func (n *wired) profiledClaim(t *testing.T, fields string) *resourceapi.ResourceClaim {
	t.Helper()
	rc := n.claim(t, "a", 0)
	rc.UID = claimUID
	rc.Status.Allocation.Devices.Config = nil
	rc.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "pod-1"}}
	if fields != "" {
		rc.Status.Allocation.Devices.Config = n.profilerConfig(fields)
	}
	return rc
}

// profilerConfig is the configuration of a claim with these fields.
func (n *wired) profilerConfig(fields string) []resourceapi.DeviceAllocationConfiguration {
	return []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: n.cfg.DriverName, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig",` + fields + `}`),
			}},
		},
	}}
}

// profileOf is the profile in the record of the claim; nil without one.
func profileOf(t *testing.T, p *Plugin) *v1alpha1.ProfilerConfig {
	t.Helper()
	record, err := p.Machine.State.Records.Load(claimUID)
	require.NoError(t, err)
	assert.Equal(t, record.Extensions.Has(claim.KindProfile), record.Results[0].Extensions.Has(claim.KindProfile))
	assert.Empty(t, record.Steps)
	config, err := checkpoint.ExtensionOf[v1alpha1.ProfilerConfig](record.Extensions, claim.KindProfile)
	require.NoError(t, err)
	if config == nil {
		return nil
	}
	require.NoError(t, config.Validate())
	return config
}

// asked counts the calls of the API server that read a resource.
func (n *wired) asked(resource string) (count int) {
	for _, action := range n.client.Actions() {
		if action.Matches("get", resource) {
			count++
		}
	}
	return count
}

const withEnvironment = `"captureEnvironment":true`

func TestPrepare_Profile_InRecord(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "policy: {maxBytes: 1Gi}\ndefaults: [{namespaces: [ns], config: {duration: 1m}}]", "2022.4.2", "2023.4.4")
	p := n.build(t)
	rc := n.profiledClaim(t, withEnvironment)
	require.NoError(t, prepared(t.Context(), p, rc))
	got := profileOf(t, p)
	assert.Equal(t, "2023.4.4", *got.ToolVersion, "the version is that of the record, whatever is installed later")
	assert.Equal(t, "1Gi", got.Output.MaxBytes.String())
	assert.Equal(t, time.Minute, got.Duration.Duration)
	assert.Zero(t, n.asked("namespaces")+n.asked("pods"), "no default selects by labels")
	install(t, n.cfg, "2025.5.1", `"2026-11-21T00:00:00Z"`)
	require.NoError(t, prepared(t.Context(), p, rc))
	assert.Equal(t, got, profileOf(t, p))
}

// TestPrepare_NotProfiled_RefusedBySentence: each sentence names the necessary change.
func TestPrepare_NotProfiled_RefusedBySentence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rules, fields, want string }{
		"no tool": {"", withEnvironment, "no version of Nsight Systems is installed; the chart value profiler.tools lists the versions that are installed on nodes (will be retried)"},
		"namespace": {"policy: {namespaces: [other]}", withEnvironment,
			"profiles are not allowed in namespace ns; profiler.policy.namespaces allows: other; change the ProfilerConfig, or the chart's value profiler.policy (will be retried)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := profilingNode(t, c.rules)
				install(t, n.cfg, "2023.4.4", "null") // not proven
				p := n.build(t)
				ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer stop()
				require.ErrorContains(t, prepared(ctx, p, n.profiledClaim(t, c.fields)), c.want)
			})
		})
	}
	lacking := profilingNode(t, "", "2023.4.4")
	require.ErrorContains(t, prepared(t.Context(), lacking.build(t), lacking.profiledClaim(t, `"enabled":true`)),
		"Nsight Systems 2023.4.4 does not support switch --discard-environment, which ProfilerConfig.captureEnvironment: false requires; set captureEnvironment: true")
	off := newWired(t)
	require.ErrorContains(t, prepared(t.Context(), off.build(t), off.profiledClaim(t, withEnvironment)),
		"ProfilerConfig requires the profiler, which does not run on node n0: the chart's value profiler.tools is empty")
}

// TestPrepare_PerfEventsForbidden_Refused: the profiler would record no samples if the kernel allows them to administrators alone.
func TestPrepare_PerfEventsForbidden_Refused(t *testing.T) {
	t.Parallel()
	for level, sampling := range map[string]string{"3": "ProcessTree", "2": "ProcessTree", "4": "None", "": "ProcessTree"} {
		t.Run(level+" "+sampling, func(t *testing.T) {
			t.Parallel()
			n := profilingNode(t, "", "2023.4.4")
			n.cfg.Paths.HostRoot = t.TempDir()
			sysctl := filepath.Join(n.cfg.Paths.HostRoot, "proc/sys/kernel/perf_event_paranoid")
			if level != "" {
				require.NoError(t, os.MkdirAll(filepath.Dir(sysctl), 0o755))
				require.NoError(t, os.WriteFile(sysctl, []byte(level+"\n"), 0o644))
			}
			err := prepared(t.Context(), n.build(t), n.profiledClaim(t, withEnvironment+`,"cpuSampling":"`+sampling+`"`))
			if level != "3" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "cpuSampling requires kernel.perf_event_paranoid to be less than or equal to 2 on the node, got 3")
			refusal, ok := errors.AsType[*claim.Refusal](err)
			require.True(t, ok)
			assert.Equal(t, []string{claim.KindProfile, report.ReasonPerfEventsUnavailable}, []string{refusal.Extension, refusal.Condition})
		})
	}
}

// TestPrepare_DefaultsByLabels_APIServerAskedOnce for all claims of a namespace and a pod that are prepared together.
func TestPrepare_DefaultsByLabels_APIServerAskedOnce(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "defaults: [{namespaceSelector: {matchLabels: {profile: 'on'}}, podSelector: {matchLabels: {app: train}}, config: {captureEnvironment: true}}]", "2023.4.4")
	for _, object := range []*metav1.ObjectMeta{{Name: "ns", Labels: map[string]string{"profile": "on"}}} {
		_, err := n.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: *object}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	pod := metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: types.UID("pod-1"), Labels: map[string]string{"app": "train"}}
	_, err := n.client.CoreV1().Pods("ns").Create(t.Context(), &corev1.Pod{ObjectMeta: pod}, metav1.CreateOptions{})
	require.NoError(t, err)
	p := n.build(t)
	rc := n.profiledClaim(t, "")
	for range 3 {
		require.NoError(t, prepared(t.Context(), p, rc))
		require.NotNil(t, profileOf(t, p))
		require.NoError(t, unprepared(t.Context(), p, rc))
	}
	assert.Equal(t, []int{1, 1}, []int{n.asked("namespaces"), n.asked("pods")})
	rc.Status.Allocation.Devices.Config = n.profilerConfig(`"enabled":false`)
	require.NoError(t, prepared(t.Context(), p, rc))
	assert.Nil(t, profileOf(t, p), "opted out")
}

// TestPrepare_LabelsUnknown_ClaimPrepared: a default that cannot be decided keeps no pod from starting.
func TestPrepare_LabelsUnknown_ClaimPrepared(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "defaults: [{namespaceSelector: {}, config: {captureEnvironment: true}}]", "2023.4.4")
	p := n.build(t)
	require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, "")))
	assert.Nil(t, profileOf(t, p))
}

// TestPrepare_LabelsUnknown_FailClosedRetried: a default that must not be left out is not.
func TestPrepare_LabelsUnknown_FailClosedRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := profilingNode(t, "defaults: [{namespaceSelector: {}, config: {captureEnvironment: true, failurePolicy: FailClosed}}]", "2023.4.4")
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		p, rc := n.build(t), n.profiledClaim(t, "")
		require.ErrorContains(t, prepared(ctx, p, rc), "a default for profiles with failurePolicy FailClosed cannot be decided now: "+
			"profiler.defaults[0] is ignored: reading the labels of namespace ns")
		rc.Status.Allocation.Devices.Config = n.profilerConfig(`"enabled":false`)
		require.NoError(t, prepared(t.Context(), p, rc), "opted out")
		require.NoError(t, unprepared(t.Context(), p, rc))
		_, err := n.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		rc.Status.Allocation.Devices.Config = nil
		require.NoError(t, prepared(t.Context(), p, rc))
		assert.NotNil(t, profileOf(t, p))
	})
}

// TestProfiling_RulesNotRead_ClaimRetried: without the policy no profile is allowed, and a claim without one is prepared.
func TestProfiling_RulesNotRead_ClaimRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := profilingNode(t, "", "2023.4.4")
		require.NoError(t, n.client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "rules", metav1.DeleteOptions{}))
		p := n.build(t)
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		rc := n.profiledClaim(t, withEnvironment)
		require.ErrorContains(t, prepared(ctx, p, rc), "the policy for profiles in ConfigMap ns/rules is not known yet (will be retried)")
		rc.Status.Allocation.Devices.Config = nil
		require.NoError(t, prepared(t.Context(), p, rc))
	})
}

// silent is an API server that answers the requests for a path, and no other.
type silent struct {
	path string
	body []byte
}

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.path != "" && strings.HasSuffix(r.URL.Path, s.path) {
		return &http.Response{
			StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(s.body)), Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		}, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestPrepare_CallEnds_APIServerNotAwaited: the kubelet's call, or the stop of the plugin, also bounds the reads for profiles. A claim is
// not prepared if the time did not suffice for them.
func TestPrepare_CallEnds_APIServerNotAwaited(t *testing.T) {
	t.Parallel()
	const text = "defaults: [{namespaceSelector: {}, config: {captureEnvironment: true}}]"
	config := rulesMap(text)
	config.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	body, err := json.Marshal(config)
	require.NoError(t, err)
	for name, server := range map[string]silent{"policy and defaults": {}, "labels": {"/configmaps/rules", body}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://server", Transport: server})
				require.NoError(t, err)
				n := profilingNode(t, text, "2023.4.4")
				p := n.build(t)
				api := extension.Connection{Claims: client, Background: n.client, Records: p.Machine.Kept}
				profilesOf(p).Connect(t.Context(), api)
				const limit = 500 * time.Millisecond
				ctx, stop := context.WithTimeout(t.Context(), limit)
				defer stop()
				began := time.Now()
				require.ErrorIs(t, prepared(ctx, p, n.profiledClaim(t, "")), context.DeadlineExceeded)
				assert.LessOrEqual(t, time.Since(began), limit)
			})
		})
	}
}

// TestProfiling_RulesReadLate_DefaultsApplied: the API server did not answer when the plugin started, and does when a claim is prepared.
func TestProfiling_RulesReadLate_DefaultsApplied(t *testing.T) {
	t.Parallel()
	const text = "defaults: [{namespaces: [ns], config: {captureEnvironment: true}}]"
	n := profilingNode(t, text, "2023.4.4")
	require.NoError(t, n.client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "rules", metav1.DeleteOptions{}))
	p := n.build(t)
	_, err := n.client.CoreV1().ConfigMaps("ns").Create(t.Context(), rulesMap(text), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, prepared(t.Context(), p, n.profiledClaim(t, "")))
	assert.NotNil(t, profileOf(t, p))
}
