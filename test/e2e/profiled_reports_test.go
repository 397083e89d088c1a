package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/debian"
	"github.com/prism-gpu/prism/test/images"
)

// exported returns the processes with calls in a report, in the output of NVIDIA's own tool.
func exported(t *testing.T, report string) []string {
	t.Helper()
	return exportedBy(t, images.NsysRelease, report)
}

func exportedBy(t *testing.T, release, report string) []string {
	t.Helper()
	dir, err := debian.NsightSystems(release).Unpacked(t.Context(), false)
	require.NoError(t, err)
	c, database := open(t), filepath.Join(t.TempDir(), "report.sqlite")
	tool := filepath.Join(dir, images.NsysDirectory)
	c.must(t, filepath.Join(tool, "target-linux-x64/nsys"), "export", "--type", "sqlite", "--output", database, report)
	processes := strings.Fields(c.must(t, filepath.Join(tool, "host-linux-x64/sqlite3"), database,
		"select distinct p.name from PROCESSES p join OSRT_API o on (o.globalTid >> 24) = (p.globalPid >> 24)"))
	if len(processes) == 0 {
		t.Logf("processes and calls of %s:\n%s", report, c.must(t, filepath.Join(tool, "host-linux-x64/sqlite3"), database,
			"select * from PROCESSES; select count(*), globalTid from OSRT_API group by 2; select * from ANALYSIS_DETAILS; select * from PROFILER_OVERHEAD"))
	}
	for i := range processes {
		processes[i] = filepath.Base(processes[i])
	}
	return processes
}

// contentPath returns the path of a report's content on the API server.
func contentPath(namespace, report string) string {
	return "/apis/" + reportsVersion + "/namespaces/" + namespace + "/reports/" + report + "/content"
}

// downloads fetches a report from the API server into a file and checks its checksum.
func (ns *namespace) downloads(r reportOf) string {
	ns.t.Helper()
	content, err := ns.content(r)
	require.NoError(ns.t, err)
	return ns.saves(r, content)
}

// content fetches a report.
func (ns *namespace) content(r reportOf) ([]byte, error) {
	return ns.reader.Get().AbsPath(contentPath(ns.name, r.Metadata.Name)).DoRaw(context.Background())
}

// saves writes a report to a file and checks its checksum.
func (ns *namespace) saves(r reportOf, content []byte) string {
	ns.t.Helper()
	sum := sha256.Sum256(content)
	assert.Equal(ns.t, r.Status.SHA256, hex.EncodeToString(sum[:]))
	assert.Len(ns.t, content, int(r.Status.Size))
	file := filepath.Join(ns.t.TempDir(), r.Status.File)
	require.NoError(ns.t, os.WriteFile(file, content, 0o600))
	return file
}

// kubectlPrism returns a command line of the kubectl plugin.
func (ns *namespace) kubectlPrism(args ...string) []string {
	return append([]string{filepath.Join(ns.root, "bin/kubectl-prism"), "--kubeconfig", ns.variable("KUBECONFIG"), "--namespace", ns.name, "profile"}, args...)
}

// digestOfLibrary prints the SHA-256 of the library that the processes of a container load.
const digestOfLibrary = `import hashlib; print(hashlib.sha256(open("/run/prism/programs/libprism-inject.so", "rb").read()).hexdigest())`

// TestProfile_Server_ReportOutlivesPod: a server that gets SIGTERM with its pod ends as without a profile. Its report exists when pod and
// claim are gone, contains the process, and is downloaded and removed with kubectl prism.
func TestProfile_Server_ReportOutlivesPod(t *testing.T) {
	ns := profiled(t, 1)
	fields := `{"match": {"regex": "server\\.py$"}, "output": {"fileName": "{PROCESS_NAME}_%{POD_FULLNAME}_{CONTAINER}_%{STAGE}_{NODE}"}}`
	server := inPrograms("main", "python3", "/opt/server.py")
	server.Env = []corev1.EnvVar{{Name: "STAGE", Value: "a/b c"}}
	ns.createProfiled("server", fields, nil, server)
	hold := func(finalizers string) {
		_, _ = ns.try("patch", "pod", "server", "--type=merge", "--patch", `{"metadata": {"finalizers": `+finalizers+`}}`)
	}
	t.Cleanup(func() { hold("null") })
	hold(`["e2e.prism.dev/hold"]`)
	ns.prints("server", "main", "serves")
	ns.says("server", "ProfilerReady", metav1.ConditionTrue, "Configured")
	ns.says("server", "Profiling", metav1.ConditionTrue, "Recording")
	assert.Contains(t, ns.must(t, ns.kubectlPrism("check", "server")...), "profiled: yes")
	var data struct {
		Library string `json:"profilerLibrary"`
	}
	require.NoError(t, json.Unmarshal(ns.claim("server").Status.Devices[0].Data.Raw, &data))
	assert.Contains(t, ns.do("exec", "server", "--", "python3", "-c", digestOfLibrary), strings.TrimPrefix(data.Library, "sha256:"))
	assert.Len(t, data.Library, len("sha256:")+2*sha256.Size)
	recording := ns.reportsOf("server", 1, "Recording")[0]
	_, err := ns.getRaw(contentPath(ns.name, recording.Metadata.Name))
	assert.True(t, apierrors.IsConflict(err), "the content of a report that is not there yet: %v", err)

	ns.do("delete", "--wait=false", "pod", "server")
	assert.Equal(t, map[string]int32{"main": 5}, ns.exits("server"))
	hold("null")
	uid := ns.claim("server").UID
	ns.do("delete", "--ignore-not-found", "--timeout="+startLimit.String(), "pod,resourceclaim", "server")

	r := ns.reportsOf("server", 1, "Ready")[0]
	assert.Equal(t, recording.Metadata.Name, r.Metadata.Name)
	assert.Equal(t, ns.name, r.Metadata.Namespace)
	assert.EqualValues(t, uid, r.Spec.ClaimUID)
	assert.Equal(t, []string{"server", "main", nodeName, "python3.11", images.NsysVersion},
		[]string{r.Spec.Pod, r.Spec.Container, r.Spec.Node, r.Spec.Process, r.Spec.Tool})
	assert.Equal(t, "python3.11_server_main_a_b_c_n0.nsys-rep", r.Status.File)
	assert.Equal(t, []string{"python3.11"}, exported(t, ns.downloads(r)))
	ns.shown(r)
	ns.removed(r)
}

// shown checks the output and the downloads of kubectl, with its plugin and without.
func (ns *namespace) shown(r reportOf) {
	ns.t.Helper()
	table := ns.do("get", "reports.profiles.gpu.prism.dev", "--selector", "gpu.prism.dev/pod="+r.Spec.Pod)
	for _, part := range []string{r.Metadata.Name, r.Spec.Process, "Ready"} {
		assert.Contains(ns.t, table, part)
	}
	assert.Contains(ns.t, ns.must(ns.t, ns.kubectlPrism("list", "--claim", r.Spec.Claim)...), r.Status.File)
	assert.NotContains(ns.t, ns.must(ns.t, ns.kubectlPrism("list", "--container", "other")...), r.Metadata.Name)
	ns.downloadsByCLI(r)
}

// downloadsByCLI checks that a download resumes an earlier one, and overwrites nothing.
func (ns *namespace) downloadsByCLI(r reportOf) {
	ns.t.Helper()
	dir := ns.t.TempDir()
	file := filepath.Join(dir, r.Status.File)
	download := ns.kubectlPrism("download", "--claim", r.Spec.Claim, "--output", dir)
	ns.must(ns.t, download...)
	whole, err := os.ReadFile(file)
	require.NoError(ns.t, err)
	sum := sha256.Sum256(whole)
	assert.Equal(ns.t, r.Status.SHA256, hex.EncodeToString(sum[:]))
	ns.must(ns.t, download...)

	require.NoError(ns.t, os.Remove(file))
	part := file + "." + r.Status.SHA256[:12] + ".part"
	require.NoError(ns.t, os.WriteFile(part, whole[:len(whole)/3], 0o600))
	ns.must(ns.t, download...)
	resumed, err := os.ReadFile(file)
	require.NoError(ns.t, err)
	assert.Equal(ns.t, whole, resumed)
	assert.NoFileExists(ns.t, part)

	require.NoError(ns.t, os.WriteFile(file, []byte("another"), 0o600))
	_, err = ns.run("", download...)
	require.ErrorContains(ns.t, err, "different file of that name exists")
	kept, err := os.ReadFile(file)
	require.NoError(ns.t, err)
	assert.Equal(ns.t, "another", string(kept))
}

// removed makes a download remove its source, and checks that the API and the node no longer have it.
func (ns *namespace) removed(r reportOf) {
	ns.t.Helper()
	ns.do("delete", "--dry-run=server", "reports.profiles.gpu.prism.dev", r.Metadata.Name)
	err := ns.reader.Delete().AbsPath(strings.TrimSuffix(contentPath(ns.name, r.Metadata.Name), "/content")).SetHeader("Content-Type", "application/json").
		Body([]byte(`{"preconditions": {"uid": "other"}}`)).Do(context.Background()).Error()
	require.ErrorContains(ns.t, err, "precondition failed")
	require.Len(ns.t, ns.allReports(), 1)
	ns.must(ns.t, ns.kubectlPrism("download", "--claim", r.Spec.Claim, "--output", ns.t.TempDir(), "--remove-source")...)
	assert.Empty(ns.t, ns.allReports())
	ns.notFound(contentPath(ns.name, r.Metadata.Name))
	files, err := filepath.Glob(filepath.Join(ns.stateDirectory(), "profiles", r.Spec.ClaimUID, "reports/*"))
	require.NoError(ns.t, err)
	assert.Empty(ns.t, files)
}

// TestProfile_Strangers_Forbidden: reports belong to a namespace, and rights on the namespace include them: the role view lists them, and
// the role edit also reads their content. Other users can do neither.
func TestProfile_Strangers_Forbidden(t *testing.T) {
	ns := profiled(t, 1)
	other := newNamespace(t, ns.cluster)
	ns.createProfiled("owned", `{}`, nil, inPrograms("main", "python3", "/opt/facts.py"))
	r := ns.reportsOf("owned", 1, "Ready")[0]
	list, content := strings.TrimSuffix(contentPath(ns.name, ""), "//content"), contentPath(ns.name, r.Metadata.Name)
	for _, user := range []struct {
		name, role  string
		at          *namespace
		sees, edits bool
	}{
		{name: "nobody"},
		{name: "neighbour", role: "edit", at: other},
		{name: "viewer", role: "view", at: ns, sees: true},
		{name: "editor", role: "edit", at: ns, sees: true, edits: true},
	} {
		line := ns.userWith(user.name, user.role, user.at)
		for _, c := range []struct {
			allowed bool
			args    []string
		}{
			{user.sees, []string{"get", "--raw", list}},
			{user.sees, []string{"get", "--raw", list + "/" + r.Metadata.Name}},
			{user.edits, []string{"get", "--raw", content}},
			{false, []string{"get", "--raw", "/apis/" + reportsVersion + "/reports"}},
			{user.edits, []string{"delete", "--raw", list + "/" + r.Metadata.Name}},
		} {
			if c.allowed {
				eventually(t, reportLimit, func() error { // on a busy machine the node may not respond
					_, err := ns.run("", append(line, c.args...)...)
					if err != nil {
						err = fmt.Errorf("%s: %w", user.name, err)
					}
					return err
				})
				continue
			}
			_, err := ns.run("", append(line, c.args...)...)
			if assert.Error(t, err, "%s: %v", user.name, c.args) {
				assert.Contains(t, err.Error(), "orbidden", "%s: %v", user.name, c.args)
			}
		}
	}
	assert.Empty(t, ns.allReports(), "the editor removed it")
}

// userWith returns a command line of kubectl for a new user with a role in a namespace; without a role, for a user without rights.
func (ns *namespace) userWith(name, role string, at *namespace) []string {
	ns.t.Helper()
	ns.do("create", "serviceaccount", name)
	if role != "" {
		at.do("create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", ns.name+":"+name)
	}
	return ns.as(strings.TrimSpace(ns.do("create", "token", name)))
}

// TestProfile_API_Available: the API server reports the API of reports as available and discovers its resources.
func TestProfile_API_Available(t *testing.T) {
	ns := profiled(t, 0)
	const available = `aggregator_unavailable_apiservice{name="v1alpha1.profiles.gpu.prism.dev"} 0`
	eventually(t, startLimit, func() error { // a failed check counts until the next one
		if metrics := ns.must(t, ns.kubectl("get", "--raw", "/metrics")...); !strings.Contains(metrics, available) {
			return errors.New("the API server counts the API as unavailable")
		}
		return nil
	})
	resources := ns.do("api-resources", "--api-group=profiles.gpu.prism.dev", "--output=name")
	for _, resource := range []string{"reports", "sessions", "sessioncommands"} {
		assert.Contains(t, resources, resource+".profiles.gpu.prism.dev\n")
	}
	ns.do("get", "reports.profiles.gpu.prism.dev,sessions.profiles.gpu.prism.dev", "--all-namespaces")
	ns.notFound(fmt.Sprintf("/apis/%s/namespaces/%s/reports/none", reportsVersion, ns.name))
}

// notFound checks that the API answers not found. About a report it does so when all nodes have answered.
func (ns *namespace) notFound(path string) {
	ns.t.Helper()
	eventually(ns.t, reportLimit, func() error {
		_, err := ns.getRaw(path)
		require.Error(ns.t, err, path)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
