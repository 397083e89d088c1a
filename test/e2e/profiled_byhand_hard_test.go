package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// commandPath is the path of commands in the namespace.
func (ns *namespace) commandPath() string {
	return "/apis/" + reportsVersion + "/namespaces/" + ns.name + "/sessioncommands"
}

// commandObject returns a command with this spec, a JSON object.
func commandObject(spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": %q, "kind": "SessionCommand", "spec": %s}`, reportsVersion, spec)
}

// createCommand creates a command and returns the answer.
func (ns *namespace) createCommand(spec string) (string, error) {
	return ns.run(string(commandObject(spec)), ns.kubectl("create", "--raw", ns.commandPath(), "--filename=-")...)
}

// noSessions waits until the namespace has no session.
func (ns *namespace) noSessions() {
	ns.t.Helper()
	eventually(ns.t, reportLimit, func() error {
		left, err := ns.sessions()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("sessions of processes that exited: %+v", left)
		}
		return err
	})
}

// TestProfile_ByHand_PodDeleted_ReadyOrNothing: a recording whose pod is deleted has a report, and a process that waits leaves nothing.
func TestProfile_ByHand_PodDeleted_ReadyOrNothing(t *testing.T) {
	ns := profiled(t, 2)
	for _, name := range []string{"recording", "waiting"} {
		ns.createProfiled(name, `{`+byHand+`}`, nil, untilEnd())
	}
	ns.waiting("waiting", 1)
	ns.command("start", ns.waiting("recording", 1)[0].Name)
	ns.delete("pods", "--all")
	ns.reportsOf("recording", 1, "Ready")
	ns.noSessions()
	assert.Len(t, ns.allReports(), 1)
}

// TestProfile_ByHand_StoreFull_WaitGoesOn: while the reports of a claim exceed their limit its process refuses to be recorded, and then it
// can be recorded again.
func TestProfile_ByHand_StoreFull_WaitGoesOn(t *testing.T) {
	ns := profiled(t, 1)
	ns.createProfiled("fills", `{`+byHand+`, "output": {"maxBytes": "32Mi"}}`, nil, untilEnd())
	s := ns.waiting("fills", 1)[0]
	ns.do("exec", "fills", "--", "dd", "if=/dev/zero", "of=/run/prism/results/filling", "bs=1M", "count=64")
	t.Log(ns.says("fills", "Profiling", "False", "StoreFull"))
	out, err := ns.run("", ns.kubectlPrism("start", s.Name)...)
	require.Error(t, err)
	assert.Contains(t, out, "limit")
	assert.Equal(t, s.Name, ns.waiting("fills", 1)[0].Name)
	eventually(t, reportLimit, func() error {
		info, err := os.Stat(filepath.Join(ns.inbox("fills"), "filling"))
		if err == nil && info.Size() > 0 {
			return fmt.Errorf("the file still has %d bytes", info.Size())
		}
		_, err = ns.run("", ns.kubectlPrism("start", s.Name)...)
		return err
	})
	ns.command("stop", s.Name)
	ns.reportsOf("fills", 1, "Ready")
	ns.ends("fills")
}

// TestProfile_ByHand_PluginKilled_DoneOnce: a command is carried out once if the plugin is killed after it accepted the command, also if a
// client repeats it.
func TestProfile_ByHand_PluginKilled_DoneOnce(t *testing.T) {
	ns := profiledExclusive(t)
	ns.createProfiled("once", `{`+byHand+`}`, nil, untilEnd())
	s := ns.waiting("once", 1)[0]
	plugin := ns.freshPlugin(t)
	spec := fmt.Sprintf(`{"id": "01234567-89ab-4def-8123-456789abcdef", "verb": "Start", "sessions": [%q], "at": %q, "duration": "2s"}`,
		s.Name, time.Now().Add(20*time.Second).UTC().Format(metav1.RFC3339Micro))
	answer, err := ns.createCommand(spec)
	require.NoError(t, err)
	require.Contains(t, answer, `"accepted":1`)
	ns.must(t, ns.onNode("kill", "-KILL", ns.pid(t, plugin))...)
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	eventually(t, reportLimit, func() error {
		answer, err = ns.createCommand(spec)
		if err == nil && !strings.Contains(answer, `"accepted":1`) {
			err = fmt.Errorf("the repeated command was answered with %s", answer)
		}
		return err
	})
	r := ns.reportsOf("once", 1, "Ready")[0]
	last := ns.waiting("once", 1)[0].Status.LastCommand
	require.NotNil(t, last)
	assert.Equal(t, []string{"Recorded", r.Metadata.Name}, []string{last.Outcome, last.Report})
	ns.ends("once")
	ns.noSessions()
	assert.Len(t, ns.allReports(), 1)
}

// TestProfile_ByHand_PluginHangs_Limited: while a plugin does not answer, its node is named, and a namespace cannot take up all commands.
func TestProfile_ByHand_PluginHangs_Limited(t *testing.T) {
	ns := profiledExclusive(t)
	ns.createProfiled("hangs", `{`+byHand+`}`, nil, untilEnd())
	ns.waiting("hangs", 1)
	hung := ns.pid(t, ns.freshPlugin(t))
	goesOn := ns.onNode("kill", "-CONT", hung)
	goOn := func() { _, _ = ns.run("", goesOn...) } // the kubelet restarts a plugin that hangs for long
	t.Cleanup(goOn)
	ns.must(t, ns.onNode("kill", "-STOP", hung)...)
	client := ns.client("asks", ns)
	var asking sync.WaitGroup
	refused := make(chan bool, 8)
	for i := range cap(refused) {
		asking.Go(func() {
			spec := fmt.Sprintf(`{"id": "01234567-89ab-4def-8123-45678900000%d", "verb": "Stop", "selection": {}}`, i)
			err := client.Post().AbsPath(ns.commandPath()).Body(commandObject(spec)).MaxRetries(0).Do(context.Background()).Error()
			refused <- apierrors.IsTooManyRequests(err)
		})
	}
	asking.Wait()
	close(refused)
	count := 0
	for is := range refused {
		if is {
			count++
		}
	}
	assert.Positive(t, count, "of 8 commands at once some must be refused")
	assert.Less(t, count, 8)
	goOn()
	ns.plugin(t)
	ns.waiting("hangs", 1)
	ns.ends("hangs")
}
