package profile_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

func TestList_Table_SaysWhereReportsAre(t *testing.T) {
	s := newServer(t)
	s.add("a-1", make([]byte, 3<<20))
	r := s.add("b-2", nil)
	r.Status.Path, r.Status.State, r.Spec.Pod = "/out/x.nsys-rep", "Recording", "other"
	r = s.add("c-3", nil)
	r.Namespace = "strangers"

	out, errOut, err := s.run(t.Context(), t, "list")
	require.NoError(t, err)
	assert.Empty(t, errOut)
	rows := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, rows, 3)
	assert.Equal(t, []string{"NAME", "CLAIM", "POD", "CONTAINER", "PROCESS", "STATE", "REASON", "SIZE", "AGE", "LOCATION", "FILE"}, strings.Fields(rows[0]))
	assert.Equal(t, []string{"a-1", "gpu", "train", "main", "python3", "Ready", "<none>", "3Mi", "60m", "node/node-1", "a-1.nsys-rep"}, strings.Fields(rows[1]))
	assert.Equal(t, []string{"b-2", "gpu", "other", "main", "python3", "Recording", "<none>", "<none>", "60m", "other/main:/out/x.nsys-rep", "b-2.nsys-rep"},
		strings.Fields(rows[2]))

	out, _, err = s.run(t.Context(), t, "list", "-A", "-o", "wide", "--no-headers")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"strangers", "c-3", "gpu", "train", "main", "python3", "Ready", "<none>", "<none>", "60m", "node/node-1", "c-3.nsys-rep", "7", "2022.4.2", "<none>",
	}, strings.Fields(strings.Split(out, "\n")[0]))
}

func TestList_Selectors_ReachTheAPI(t *testing.T) {
	s := newServer(t)
	s.add("a-1", nil)
	r := s.add("b-2", nil)
	r.Spec.Claim, r.Spec.Container, r.Spec.Node, r.Spec.Pod, r.Spec.Process, r.Labels = "other", "side", "node-2", "p", "bash", nil
	for _, flags := range [][]string{
		{"--claim", "gpu"}, {"--container", "main"}, {"--node", "node-1"}, {"--pod=train"}, {"--process=python3"}, {"-l", "gpu.prism.dev/pod=train"},
		{"--field-selector", "spec.node!=node-2"}, {"--claim", "gpu", "--field-selector", "status.state=Ready", "--node=node-1"},
	} {
		out, _, err := s.run(t.Context(), t, append([]string{"list", "-o", "name"}, flags...)...)
		require.NoError(t, err)
		assert.Equal(t, "report.profiles.gpu.prism.dev/a-1\n", out, flags)
	}
	_, _, err := s.run(t.Context(), t, "list", "-l", "a in b")
	require.ErrorContains(t, err, "--selector: ")
	_, _, err = s.run(t.Context(), t, "list", "-o", "xml")
	require.EqualError(t, err,
		`--output: unsupported value "xml"; supported values: table, wide, json, yaml, name, jsonpath=TEXT, go-template=TEXT`)
}

func TestList_Formats_AreObjectsOfTheAPI(t *testing.T) {
	s := newServer(t)
	s.silent = []string{"node-9"}
	s.add("a-1", []byte("x"))
	out, _, err := s.run(t.Context(), t, "list", "-o", "json")
	require.NoError(t, err)
	var list struct {
		Kind, APIVersion string
		SilentNodes      []string
		Items            []struct {
			Kind, APIVersion string
			Metadata         struct{ Name string }
			Status           struct{ Size int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	assert.Equal(t, []string{"ReportList", "profiles.gpu.prism.dev/v1alpha1"}, []string{list.Kind, list.APIVersion})
	assert.Equal(t, []string{"node-9"}, list.SilentNodes)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "a-1", list.Items[0].Metadata.Name)
	assert.Equal(t, "Report", list.Items[0].Kind)
	assert.Equal(t, 1, list.Items[0].Status.Size)

	out, _, err = s.run(t.Context(), t, "list", "-o", "jsonpath={.items[*].metadata.name}")
	require.NoError(t, err)
	assert.Equal(t, "a-1", out)
	out, _, err = s.run(t.Context(), t, "list", "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "kind: ReportList\n")
	out, errOut, err := s.run(t.Context(), t, "list", "-o", "json", "--pod", "none")
	require.NoError(t, err)
	assert.Contains(t, out, `"items": []`)
	assert.NotContains(t, errOut, "No reports")
}

func TestList_SilentNodes_NamedOnce(t *testing.T) {
	s := newServer(t)
	s.silent = []string{"node-2", "node-1"}
	out, errOut, err := s.run(t.Context(), t, "list")
	require.NoError(t, err)
	assert.Empty(t, out)
	assert.Equal(t, "Warning: nodes node-1, node-2 did not answer: their reports are missing from the list; profiling continues there\n"+
		"No reports found in namespace team; to see why, run: kubectl get events -n team --field-selector reason=ProfileIncomplete\n", errOut)
}

func TestList_TruncatedNodes_Named(t *testing.T) {
	s := newServer(t)
	s.truncated = []string{"node-1"}
	s.add("a-1", nil)
	_, errOut, err := s.run(t.Context(), t, "list")
	require.NoError(t, err)
	assert.Equal(t, "Warning: the list does not contain all reports of node node-1: delete some there, or name the reports\n", errOut)
}

func TestList_TextOfContainers_Escaped(t *testing.T) {
	s := newServer(t)
	r := s.add("a-1", nil)
	r.Spec.Process, r.Status.File = "\x1b]0;x\a\u202e\u0085\rpython\n", "\x1b[2J"
	out, _, err := s.run(t.Context(), t, "list", "-o", "wide")
	require.NoError(t, err)
	assert.Contains(t, out, `\x1b]0;x\a\u202e\u0085\rpython\n`)
	assert.Contains(t, out, `\x1b[2J`)
	assert.NotContains(t, out, "\x1b")
	assert.NotContains(t, out, "\u202e")
}

// TestList_NoAnswer_OneSentence: each error states the cause and the remedy.
func TestList_NoAnswer_OneSentence(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want string
	}{
		"no API": {http.StatusNotFound, "404 page not found\n", "listing reports in namespace team: the cluster does not serve reports (API group " +
			"profiles.gpu.prism.dev): the chart of Prism is not installed, or installed without profiler.tools; an administrator can set it"},
		"no controller": {http.StatusServiceUnavailable, "service unavailable\n", "listing reports in namespace team: prism-controller, which serves " +
			"reports, does not answer; profiling continues without it; kubectl get apiservice v1alpha1.profiles.gpu.prism.dev shows the reason"},
		"stranger": {http.StatusForbidden, failure("Forbidden", "reports is forbidden: User \\\"eve\\\" cannot list"), "listing reports in namespace team: " +
			"the API server denied access: reports is forbidden: User \"eve\" cannot list; an administrator can bind ClusterRole view, which lists " +
			"reports, or edit, which downloads and deletes them, in the namespace"},
		"no credentials": {http.StatusUnauthorized, failure("Unauthorized", "Unauthorized"), "listing reports in namespace team: the API server does " +
			"not accept the credentials of the kubeconfig; log in again"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				if c.body[0] == '{' {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.body))
				return true
			}
			_, _, err := s.run(t.Context(), t, "list")
			require.EqualError(t, err, c.want)
		})
	}
	s := newServer(t)
	s.Close()
	_, _, err := s.run(t.Context(), t, "list")
	require.ErrorContains(t, err, "listing reports in namespace team: the API server "+s.URL+" does not answer: ")
}

func failure(reason metav1.StatusReason, message string) string {
	return `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + string(reason) + `","message":"` + message + `","code":400}`
}

// TestList_Pages_Followed: a list without a limit may end before its last report.
func TestList_Pages_Followed(t *testing.T) {
	s := newServer(t)
	of := func(name string) v1alpha1.Report {
		return v1alpha1.Report{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"}, Spec: v1alpha1.ReportSpec{Node: "n"}}
	}
	var asked []string
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		query := r.URL.Query()
		asked = append(asked, query.Get("limit")+" "+query.Get("continue"))
		page := v1alpha1.ReportList{Items: []v1alpha1.Report{of("a")}, SilentNodes: []string{"n-1"}, ListMeta: metav1.ListMeta{Continue: "t1"}}
		if query.Get("continue") != "" {
			page = v1alpha1.ReportList{Items: []v1alpha1.Report{of("b")}, SilentNodes: []string{"n-2"}}
		}
		answer(w, http.StatusOK, page)
		return true
	}
	out, errOut, err := s.run(t.Context(), t, "list", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, []string{"500 ", "500 t1"}, asked)
	assert.Equal(t, "report.profiles.gpu.prism.dev/a\nreport.profiles.gpu.prism.dev/b\n", out)
	assert.Contains(t, errOut, "n-1, n-2")
}
