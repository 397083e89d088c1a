package metrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// labelled is the node of the tests with these pod labels; values are by the UID of the pod.
func labelled(t *testing.T, values map[string][]string, keys ...string) *metrics.Joined {
	t.Helper()
	labels, err := metrics.PodLabels(keys)
	require.NoError(t, err)
	snapshot, allocations, exporter := node()
	whole := snapshot.GPUs[0]
	whole.XIDs[0].Times, whole.ClockEvents = []time.Time{at}, new(metrics.ClockEventHistory).Add(at, 1)
	for i := range allocations.List {
		allocations.List[i].Options.PerProcess, allocations.List[i].Options.ExposeInContainer = true, true
	}
	exporter.PodUID, exporter.PodLabels, allocations.PodLabels = true, labels, values
	return metrics.Join(snapshot, allocations, exporter)
}

// hasLabel reports whether the label is written, empty or not.
func hasLabel(m *dto.Metric, name string) bool {
	return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name })
}

// TestPodLabels_EachSeries_OfItsPod: on each page, every series that names a pod shows the pod's labels, and no other series shows one.
func TestPodLabels_EachSeries_OfItsPod(t *testing.T) {
	t.Parallel()
	values := map[string][]string{"train-uid": {"vision", ""}, "web-1-uid": {"web", "front \"end\"\n"}, "gone-uid": {"x", "y"}}
	j := labelled(t, values, "team", "example.com/appName")
	for page, names := range map[string][2]string{
		string(j.AppendNative(nil, false)): {"label_team", "label_example_com_app_name"}, string(j.AppendDCGM(nil, nil)): {"team", "example_com_appName"},
		string(j.Claim("web-1-uid")): {"label_team", "label_example_com_app_name"},
	} {
		labelled := map[string]bool{}
		for name, family := range parsed(t, []byte(page)) {
			for _, m := range family.GetMetric() {
				if !hasLabel(m, "pod") {
					assert.False(t, hasLabel(m, names[0]), "%s %v", name, m)
					continue
				}
				pod := labelOf(m, "pod")
				labelled[pod] = true
				want := values[pod+"-uid"]
				if want == nil {
					want = []string{"", ""}
				}
				assert.Equal(t, want, []string{labelOf(m, names[0]), labelOf(m, names[1])}, "%s of %s", name, pod)
				assert.True(t, hasLabel(m, names[0]) && hasLabel(m, names[1]), "%s is written also where it is empty", name)
			}
		}
		assert.True(t, labelled["train"] || labelled["web-1"])
	}
	assert.NotContains(t, string(metrics.Join(node()).AppendNative(nil, false)), ",label_")
}

func TestPodLabels_OTel_AttributesOfTheConventions(t *testing.T) {
	t.Parallel()
	found := map[string]map[string]string{}
	for _, r := range labelled(t, map[string][]string{"train-uid": {"vision", ""}}, "example.com/team", "other").OTel(time.Time{}) {
		of := map[string]string{}
		for _, a := range r.Resource.Attributes() {
			of[string(a.Key)] = a.Value.AsString()
		}
		found[of["k8s.pod.name"]] = of
	}
	assert.Equal(t, "vision", found["train"]["k8s.pod.label.example.com/team"])
	assert.NotContains(t, found["train"], "k8s.pod.label.other")
	for pod, of := range found {
		assert.Equal(t, pod == "train", of["k8s.pod.label.example.com/team"] != "", pod)
	}
}

func TestPodLabels_Names_ThoseOfOtherExporters(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][2]string{
		"app":                      {"label_app", "app"},
		"app.kubernetes.io/name":   {"label_app_kubernetes_io_name", "app_kubernetes_io_name"},
		"batch.example.com/jobTTL": {"label_batch_example_com_job_ttl", "batch_example_com_jobTTL"},
		"Team2Name":                {"label_team2_name", "Team2Name"},
		"9gag.com/x":               {"label_9gag_com_x", "_9gag_com_x"},
	} {
		j := labelled(t, map[string][]string{"train-uid": {"v"}}, key)
		assert.Contains(t, string(j.AppendNative(nil, false)), `,`+want[0]+`="v"}`, key)
		assert.Contains(t, string(j.AppendDCGM(nil, nil)), `,`+want[1]+`="v",container=`, key)
	}
}

// TestPodLabels_NamesOfThePages_Kept: a pod label of any name replaces neither another label of its series nor a label that Prometheus
// adds.
func TestPodLabels_NamesOfThePages_Kept(t *testing.T) {
	t.Parallel()
	csv := []string{"DCGM_EXP_XID_ERRORS_COUNT, gauge, x", "DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, x", "DCGM_FI_DEV_FB_USED, gauge, x"}
	for _, name := range metrics.DCGMLabels() {
		csv = append(csv, name+", label, x")
	}
	chosen, problems, err := metrics.ParseCSV([]byte(strings.Join(csv, "\n")))
	require.NoError(t, err)
	require.Empty(t, problems)
	pages := func(j *metrics.Joined) []map[string]*dto.MetricFamily {
		return []map[string]*dto.MetricFamily{native(t, j), parsed(t, j.AppendDCGM(nil, chosen)), parsed(t, j.AppendDCGM(nil, nil))}
	}
	without := pages(labelled(t, nil))
	for i, page := range without {
		names := map[string]bool{"job": true, "instance": true, "node": true, "metrics_path": true, "service": true, "endpoint": true}
		for _, family := range page {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					names[l.GetName()] = true
				}
			}
		}
		assert.True(t, names["pod"] && names["xid"] && (names["mig_uuid"] || names["GPU_I_ID"] && names["clock_event"]), names)
		for name := range names {
			// A duplicate label does not parse.
			for _, family := range pages(labelled(t, map[string][]string{"train-uid": {"tenant"}}, name))[i] {
				for _, m := range family.GetMetric() {
					assert.NotEqual(t, "tenant", labelOf(m, name), "%s{%s}", family.GetName(), name)
				}
			}
		}
	}
}

func TestPodLabels_KeysOfOneName_Refused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, name string }{
		{"app.name", "app-name", "app_name"}, {"appName", "app_name", "label_app_name"}, {"a/b", "a.b", "a_b"}, {"app", "app", "app"},
		{"pod", "label_pod", "label_pod"}, {"label_pod", "pod", "label_pod"},
	} {
		_, err := metrics.PodLabels([]string{"other", c.a, c.b})
		require.EqualError(t, err, `pod labels "`+c.a+`" and "`+c.b+`" would both become label `+c.name+` of metrics: remove one of them`)
	}
}
