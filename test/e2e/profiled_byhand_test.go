package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/test/debian"
	"github.com/prism-gpu/prism/test/images"
)

// byHand are the fields of a profile whose processes wait, with the version that can record several containers by hand.
const byHand = `"start": "Manual", "trace": ["osrt"], "toolVersion": "` + images.LaterNsysVersion + `"`

// phases calls another function of libc in each phase, which a file names, and none in other phases. It exits with 3 at the end.
const phases = `import os, sys, time
fd = os.open('/tmp/data', os.O_RDWR | os.O_CREAT)
calls = {'before': lambda: os.fsync(fd), 'during': lambda: os.fdatasync(fd), 'after': lambda: os.link('/tmp/data', '/tmp/link') or os.unlink('/tmp/link')}
print('begins', flush=True)
while not os.path.exists('/tmp/end'):
    if os.path.exists('/tmp/phase'):
        calls.get(open('/tmp/phase').read(), lambda: None)()
    time.sleep(0.01)
sys.exit(3)`

// sessions lists the sessions of a namespace.
func (ns *namespace) sessions(selectors ...string) ([]v1alpha1.Session, error) {
	var list v1alpha1.SessionList
	err := ns.read(&list, append([]string{"sessions"}, selectors...)...)
	if err == nil && len(list.SilentNodes) > 0 {
		err = fmt.Errorf("nodes %s are silent", strings.Join(list.SilentNodes, ", "))
	}
	return list.Items, err
}

// waiting waits until a claim has this number of sessions, all Waiting, and returns them in the order of their names.
func (ns *namespace) waiting(claim string, count int) []v1alpha1.Session {
	ns.t.Helper()
	var found []v1alpha1.Session
	eventually(ns.t, exitLimit, func() (err error) {
		found, err = ns.sessions("--field-selector", "spec.claim="+claim)
		if err != nil {
			return err
		}
		if len(found) != count || slices.ContainsFunc(found, func(s v1alpha1.Session) bool { return s.Status.State != "Waiting" }) {
			return fmt.Errorf("claim %s must have %d waiting sessions, has %+v", claim, count, found)
		}
		return nil
	})
	return found
}

// command runs kubectl prism profile for sessions and returns its output.
func (ns *namespace) command(args ...string) string {
	ns.t.Helper()
	out := ns.must(ns.t, ns.kubectlPrism(args...)...)
	ns.t.Logf("kubectl prism profile %s:\n%s", strings.Join(args, " "), out)
	return out
}

// phase makes the process of a pod call the function of a phase, and returns when it has.
func (ns *namespace) phase(pod, name string) {
	ns.t.Helper()
	ns.do("exec", pod, "--", "sh", "-c", "printf "+name+" > /tmp/phase.new && mv /tmp/phase.new /tmp/phase && sleep 0.5")
}

// callsIn returns the traced functions of libc in a report.
func (ns *namespace) callsIn(r reportOf) []string {
	ns.t.Helper()
	dir, err := debian.NsightSystems(images.LaterNsysRelease).Unpacked(ns.t.Context(), false)
	require.NoError(ns.t, err)
	database := filepath.Join(ns.t.TempDir(), "report.sqlite")
	tool := filepath.Join(dir, images.NsysDirectory)
	ns.must(ns.t, filepath.Join(tool, "target-linux-x64/nsys"), "export", "--type", "sqlite", "--output", database, ns.downloads(r))
	return strings.Fields(ns.must(ns.t, filepath.Join(tool, "host-linux-x64/sqlite3"), database,
		"select distinct s.value from OSRT_API o join StringIds s on s.id = o.nameId"))
}

// TestProfile_ByHand_RecordsInBetween: a process waits, is recorded from a start to a stop, twice, and a canceled recording leaves nothing.
func TestProfile_ByHand_RecordsInBetween(t *testing.T) {
	ns := profiled(t, 1)
	ns.createProfiled("by-hand", `{`+byHand+`}`, nil, inPrograms("main", "python3", "-c", phases))
	ns.prints("by-hand", "main", "begins")
	s := ns.waiting("by-hand", 1)[0]
	assert.Equal(t, []string{"by-hand", "main", nodeName, "python3.11"}, []string{s.Spec.Pod, s.Spec.Container, s.Spec.Node, s.Spec.Process})
	assert.Empty(t, ns.allReports(), "nothing is recorded yet")
	var reports []string
	for range 2 {
		ns.phase("by-hand", "before")
		ns.phase("by-hand", "none")
		assert.Contains(t, ns.command("start", s.Name), "Recording")
		ns.phase("by-hand", "during")
		ns.phase("by-hand", "none")
		ns.command("stop", s.Name)
		ns.phase("by-hand", "after")
		last := ns.waiting("by-hand", 1)[0].Status.LastCommand
		require.NotNil(t, last)
		assert.Equal(t, "Recorded", last.Outcome)
		reports = append(reports, last.Report)
	}
	assert.NotEqual(t, reports[0], reports[1])
	for _, r := range ns.reportsOf("by-hand", 2, "Ready") {
		assert.Contains(t, reports, r.Metadata.Name)
		calls := ns.callsIn(r)
		assert.Contains(t, calls, "fdatasync")
		assert.NotContains(t, calls, "fsync", "a call before the start")
		assert.NotContains(t, calls, "link", "a call after the stop")
	}
	ns.command("start", s.Name)
	ns.command("cancel", s.Name)
	assert.Len(t, ns.reportsOf("by-hand", 2, "Ready"), 2)
	ns.ends("by-hand")
	eventually(t, reportLimit, func() error {
		left, err := ns.sessions()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("sessions of a process that exited: %+v", left)
		}
		return err
	})
}

// TestProfile_ByHand_ProcessEnds_ReportReady: a process that exits while it is recorded has a report, and exits as without a profile.
func TestProfile_ByHand_ProcessEnds_ReportReady(t *testing.T) {
	ns := profiled(t, 1)
	ns.createProfiled("exits", `{`+byHand+`}`, nil, untilEnd())
	ns.prints("exits", "main", "begins")
	ns.command("start", ns.waiting("exits", 1)[0].Name)
	ns.ends("exits")
	r := ns.reportsOf("exits", 1, "Ready")[0]
	assert.Equal(t, []string{"python3.11"}, exportedBy(t, images.LaterNsysRelease, ns.downloads(r)))
}

// TestProfile_ByHand_Programs_RunAsWithout: programs that wait run as without a profile: without rights, with a read-only root, in an image
// without a shell, and beside each other.
func TestProfile_ByHand_Programs_RunAsWithout(t *testing.T) {
	ns := profiled(t, 2)
	yes, no, user := true, false, int64(1234)
	context := &corev1.SecurityContext{
		RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	restricted, script := inPrograms("restricted", "python3", "/opt/facts.py"), inPrograms("script", "/opt/script.sh", "1", "2 3")
	restricted.Env, restricted.SecurityContext = variables(), context
	distroless := inPrograms("distroless", "/opt/facts", "an argument", "")
	distroless.Image, distroless.Env, distroless.SecurityContext = images.DistrolessImage, variables(), context
	signals := inPrograms("signals", "/opt/signals.sh")
	fields := `{` + byHand + `, "match": {"regex": "/opt/(facts|script)|dies$", "useDefaultExcludes": false}}`
	ns.runsAs("waits", fields, 0, nil, restricted, script, distroless, signals)
}

// TestProfile_ByHand_PodsCoverWindow: the recordings of all pods cover one window, by their reports.
func TestProfile_ByHand_PodsCoverWindow(t *testing.T) {
	ns := profiled(t, 1)
	const pods = 4
	var containers []corev1.Container
	for i := range pods {
		one := inPrograms(fmt.Sprintf("c%d", i), "python3", "-c", phases)
		containers = append(containers, one)
	}
	ns.createProfiled("window", `{`+byHand+`}`, nil, containers...)
	ns.waiting("window", pods)
	out := ns.command("start", "--pod", "window", "--duration", "2s", "--yes")
	assert.Contains(t, out, fmt.Sprintf("%d of %d recorded the whole window", pods, pods))
	ns.reportsOf("window", pods, "Ready")
	for _, s := range ns.waiting("window", pods) {
		require.NotNil(t, s.Status.LastCommand)
		assert.GreaterOrEqual(t, s.Status.LastCommand.Ended.Sub(s.Status.LastCommand.Begun.Time), 2*time.Second)
	}
}

// TestProfile_OnDemand_ArmedProcessesRecorded: processes of a claim with arm: OnDemand are profiled if they start between arm and disarm.
func TestProfile_OnDemand_ArmedProcessesRecorded(t *testing.T) {
	ns := profiled(t, 1)
	const runs = `n=0; until [ -e /tmp/end ]; do [ ! -e /tmp/run ] || { rm /tmp/run; python3 /opt/facts.py; n=$((n+1)); echo "ran $n"; }; sleep 0.1; done; exit 3`
	ns.createProfiled("later", `{"arm": "OnDemand", "match": {"regex": "facts\\.py"}}`, nil, inPrograms("main", "sh", "-c", runs))
	run := 0
	runsOnce := func() {
		run++
		ns.do("exec", "later", "--", "touch", "/tmp/run")
		ns.prints("later", "main", fmt.Sprintf("ran %d\n", run))
	}
	eventually(t, startLimit, func() error {
		_, err := ns.try("exec", "later", "--", "true")
		return err
	})
	runsOnce()
	assert.Empty(t, ns.allReports(), "it is not armed")
	ns.command("arm", "later")
	assert.Regexp(t, `later +yes`, ns.command("sessions"))
	runsOnce()
	ns.reportsOf("later", 1, "Ready")
	ns.command("disarm", "later")
	runsOnce()
	assert.Len(t, ns.reportsOf("later", 1, "Ready"), 1)
	ns.ends("later")
}

// TestProfile_ByHand_Strangers_Refused: a viewer lists sessions and commands none; an editor of another namespace finds none; a dry run
// writes nothing.
func TestProfile_ByHand_Strangers_Refused(t *testing.T) {
	ns := profiled(t, 1)
	other := newNamespace(t, ns.cluster)
	ns.createProfiled("owned", `{`+byHand+`}`, nil, untilEnd())
	s := ns.waiting("owned", 1)[0]
	viewer := ns.userWith("viewer", "view", ns)
	_, err := ns.run("", append(viewer, "get", "sessions.profiles.gpu.prism.dev", "--namespace", ns.name, s.Name)...)
	require.NoError(t, err)
	create := func(line []string, namespace string, options ...string) (string, error) {
		object := fmt.Sprintf(`{"apiVersion": %q, "kind": "SessionCommand",
			"spec": {"id": "01234567-89ab-4def-8123-456789abcdef", "verb": "Start", "sessions": [%q]}}`, reportsVersion, s.Name)
		path := "/apis/" + reportsVersion + "/namespaces/" + namespace + "/sessioncommands" + strings.Join(options, "")
		return ns.run(object, append(line, "create", "--raw", path, "--filename=-")...)
	}
	_, err = create(viewer, ns.name)
	require.ErrorContains(t, err, "forbidden")
	editor := other.userWith("editor", "edit", other)
	answer, err := create(editor, other.name)
	require.NoError(t, err)
	assert.Contains(t, answer, "not found")
	answer, err = create(ns.userWith("dry", "edit", ns), ns.name, "?dryRun=All")
	require.NoError(t, err)
	assert.Contains(t, answer, `"accepted":1`)
	assert.Nil(t, ns.waiting("owned", 1)[0].Status.LastCommand)
	ns.ends("owned")
}
