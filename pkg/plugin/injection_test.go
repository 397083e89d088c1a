package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/podresources"
	"github.com/prism-gpu/prism/test/fakes"
)

// fakeRuntime is a container runtime that reports its problem with CDI.
type fakeRuntime struct {
	start, problem string
	// containers have started, asked counts how often it was asked for CDI and for containers.
	containers     map[string]bool
	asked, started int
	// crun are the handlers whose containers crun starts; silent: it does not say.
	crun   []string
	silent bool
}

func (r *fakeRuntime) Start() string { return r.start }

func (r *fakeRuntime) CDIProblem(_ context.Context, dir string) (string, error) {
	r.asked++
	if dir == "" {
		return "", assert.AnError
	}
	return r.problem, nil
}

func (r *fakeRuntime) Started(_ context.Context, namespace, pod, container string, after time.Time) (bool, error) {
	r.started++
	return r.containers[namespace+"/"+pod+"/"+container] && !after.IsZero(), nil
}

func (r *fakeRuntime) Crun(_ context.Context, handler string) (bool, error) {
	if r.silent {
		return false, assert.AnError
	}
	return slices.Contains(r.crun, handler), nil
}

// injected is a node whose runtime is checked.
type injected struct {
	*wired
	plugin  *Plugin
	runtime *fakeRuntime
	uses    []podresources.Use
}

func newInjected(t *testing.T, setting, problem string) *injected {
	t.Helper()
	n := &injected{wired: newWired(t), runtime: &fakeRuntime{start: "1", problem: problem, containers: map[string]bool{}}}
	n.adapters.Runtime = n.runtime
	n.cfg.Paths.RunDir = t.TempDir()
	n.adapters.OwnHookImage = filepath.Join(t.TempDir(), "prism-hook")
	require.NoError(t, os.WriteFile(n.adapters.OwnHookImage, []byte("program"), 0o600))
	n.cfg.Driver.CDIHook = setting
	n.plugin = n.build(t)
	t.Cleanup(fakes.Run(t, n.plugin.Statuses().Run))
	return n
}

// check checks once, as the leading process does.
func (n *injected) check(t *testing.T) {
	t.Helper()
	m := n.plugin.Machine
	status := driver.ClaimStatus{
		Statuses: n.plugin.Statuses(), Node: func() *gpu.Node { return m.Inventory.Current().Node }, Conditions: []driver.ConditionSource{driver.OfRecord(m.programs.Injection.Condition)}, StepData: n.plugin.Claims.Steps().StatusData,
	}
	require.NoError(t, m.programs.Injection.Check(t.Context(), programs.InjectionReports{
		Events: n.events, Records: m.Kept, Changed: status.Prepared,
		Uses: func(context.Context) (podresources.Containers, error) {
			return podresources.Containers{Uses: n.uses}, nil
		},
	}))
}

// prepare prepares a claim that a pod of its name uses.
func (n *injected) prepare(t *testing.T, name string, device int) *resourceapi.ResourceClaim {
	t.Helper()
	rc := n.claim(t, name, device)
	require.NoError(t, prepared(t.Context(), n.plugin, rc))
	record, err := n.plugin.Machine.State.Records.Load(string(rc.UID))
	require.NoError(t, err)
	require.Equal(t, checkpoint.Done, record.State)
	n.uses = append(n.uses, podresources.Use{Namespace: "ns", Pod: name, Container: "main", Claim: name, CDIDevices: record.CDI.Devices})
	return rc
}

// runHooks runs the hooks like a runtime with CDI that starts a container of the claim; it returns the number of programs.
func (n *injected) runHooks(t *testing.T, rc *resourceapi.ResourceClaim, run bool) (count int) {
	t.Helper()
	text, err := os.ReadFile(n.plugin.Machine.State.Specs.File(string(rc.UID)))
	require.NoError(t, err)
	var spec specs.Spec
	require.NoError(t, json.Unmarshal(text, &spec))
	all := spec.ContainerEdits.Hooks
	for _, d := range spec.Devices {
		all = append(all, d.ContainerEdits.Hooks...)
	}
	for _, h := range all {
		assert.Equal(t, "createRuntime", h.HookName)
		if run {
			require.NoError(t, hook.Program{}.Run(h.Args[1:]))
		}
	}
	return len(all)
}

// condition is the condition in the claim's status on whether its containers get the device; nil: none.
func (n *injected) condition(t *testing.T, rc *resourceapi.ResourceClaim) *metav1.Condition {
	t.Helper()
	require.NoError(t, n.plugin.Statuses().Drain(t.Context()))
	status := n.status(t, rc)
	require.Len(t, status, 1)
	return meta.FindStatusCondition(status[0].Conditions, "Injected")
}

// TestInjection_RuntimeAppliesCDI_HookUntilItHasRun since the runtime's start: containers after that execute no program more.
func TestInjection_RuntimeAppliesCDI_HookUntilItHasRun(t *testing.T) {
	t.Parallel()
	n := newInjected(t, "", "")
	n.check(t)
	first := n.prepare(t, "first", 0)
	n.check(t)
	assert.Equal(t, 1, n.runHooks(t, first, true))
	n.check(t)
	second := n.prepare(t, "second", 1)
	assert.Zero(t, n.runHooks(t, second, true))
	n.check(t)
	assert.Equal(t, [2]int{1, 1}, [2]int{n.runtime.asked, n.runtime.started}, "once a start, and for containers until the hook has run")
	assert.Nil(t, n.condition(t, first))

	n.runtime.start = "2"
	require.NoError(t, unprepared(t.Context(), n.plugin, second))
	n.check(t)
	third := n.prepare(t, "third", 1)
	assert.Equal(t, 1, n.runHooks(t, third, true), "the runtime was started again")
	n.check(t)
	assert.Equal(t, 2, n.runtime.asked)
	files, err := os.ReadDir(n.cfg.InjectedDir())
	require.NoError(t, err)
	require.Len(t, files, 1, "of the present start alone")
	assert.Equal(t, "2", files[0].Name())
	assert.NotContains(t, strings.Join(n.events.Written(), "\n"), "CDI")
}

// TestInjection_ContainerWithoutHook_ReportedUntilItRuns: a runtime that ignores CDI devices says nothing. The claim of a container that was
// started before is not affected.
func TestInjection_ContainerWithoutHook_ReportedUntilItRuns(t *testing.T) {
	t.Parallel()
	n := newInjected(t, "", "")
	n.runtime.start = ""
	before := n.prepare(t, "before", 1)
	n.runtime.start, n.runtime.containers["ns/before/main"] = "1", true
	rc := n.prepare(t, "a", 0)
	n.check(t)
	assert.Nil(t, n.condition(t, rc), "its container has not started")
	assert.Empty(t, strings.Join(n.events.Written(), "\n"))

	n.runtime.containers["ns/a/main"] = true
	n.check(t)
	condition := n.condition(t, rc)
	require.NotNil(t, condition)
	assert.Equal(t, metav1.ConditionFalse, condition.Status)
	assert.Equal(t, "CDINotApplied", condition.Reason)
	assert.Contains(t, condition.Message, "it does not apply CDI specs; enable CDI in its configuration, and restart it")
	assert.Nil(t, n.condition(t, before))
	assert.Contains(t, strings.Join(n.events.Written(), "\n"), "Warning CDIUnavailable Prepare: Containers do not receive the devices of their claims: ")
	n.check(t)
	assert.Empty(t, strings.Join(n.events.Written(), "\n"), "once")

	assert.Equal(t, 1, n.runHooks(t, rc, true), "CDI is on, and the container was started again")
	n.check(t)
	assert.Nil(t, n.condition(t, rc))
	assert.Contains(t, strings.Join(n.events.Written(), "\n"), "Normal CDIAvailable")
}

// TestInjection_RuntimeSaysOff_ReportedBeforeAnyContainer: the end of it is reported when a container after the next start has its devices.
func TestInjection_RuntimeSaysOff_ReportedBeforeAnyContainer(t *testing.T) {
	t.Parallel()
	n := newInjected(t, "", "CDI is off in containerd v1.7.27")
	n.check(t)
	assert.Contains(t, strings.Join(n.events.Written(), "\n"), "CDI is off in containerd v1.7.27")
	rc := n.prepare(t, "a", 0)
	condition := n.condition(t, rc)
	require.NotNil(t, condition)
	assert.Equal(t, "CDI is off in containerd v1.7.27", condition.Message)

	n.runtime.start, n.runtime.problem = "2", ""
	n.check(t)
	assert.Nil(t, n.condition(t, rc))
	assert.NotContains(t, strings.Join(n.events.Written(), "\n"), "CDIAvailable", "it is not known yet that specs are applied")
	second := n.prepare(t, "b", 1)
	assert.Equal(t, 1, n.runHooks(t, second, true))
	n.check(t)
	assert.Contains(t, strings.Join(n.events.Written(), "\n"), "Normal CDIAvailable")
	n.runtime.start = "3"
	n.check(t)
	assert.NotContains(t, strings.Join(n.events.Written(), "\n"), "CDI", "once")
}

// TestInjection_SettingIsNone_NoHook: no program may be executed on such a host, and the runtime's answer is still reported.
func TestInjection_SettingIsNone_NoHook(t *testing.T) {
	t.Parallel()
	n := newInjected(t, config.NoCDIHook, "")
	rc := n.prepare(t, "a", 0)
	n.runtime.containers["ns/a/main"] = true
	n.check(t)
	assert.Zero(t, n.runHooks(t, rc, true))
	assert.Nil(t, n.condition(t, rc))
	assert.Equal(t, 1, n.runtime.asked)
}

// TestRun_CDIOff_Reported by the process that leads.
func TestRun_CDIOff_Reported(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	n.adapters.Runtime = &fakeRuntime{start: "1", problem: "CDI is off"}
	n.run(t)
	n.awaitEvent(t, "CDIUnavailable")
}
