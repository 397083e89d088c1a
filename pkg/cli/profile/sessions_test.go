package profile_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/profile"
)

// sessionOf returns a session of a pod.
func sessionOf(namespace, name string) v1alpha1.Session {
	return v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1alpha1.SessionSpec{Claim: "gpu", Pod: "train", Container: "main", Node: "node-1", Process: "python3", PID: 7, Tool: "2023.4.4"},
		Status:     v1alpha1.SessionStatus{State: "Waiting", Since: metav1.NewTime(time.Now().Add(-time.Hour))},
	}
}

// answering answers all requests with an object.
func (s *server) answering(object any) {
	s.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		answer(w, http.StatusOK, object)
		return true
	}
}

func TestSessions_Table_WithArmedClaims(t *testing.T) {
	s := newServer(t)
	list := v1alpha1.SessionList{
		Items: []v1alpha1.Session{sessionOf("team", "b-w2"), sessionOf("team", "a-w1")}, SilentNodes: []string{"node-2"}, TruncatedNodes: []string{"node-1"},
		Claims: []v1alpha1.ArmedClaim{{Namespace: "team", Claim: "x", ClaimUID: "1", Armed: true}, {Namespace: "team", Claim: "gpu", ClaimUID: "2"}},
	}
	list.Items[0].Status.LastCommand = &v1alpha1.LastCommand{ID: "i", Verb: "Start", Outcome: "Failed", Report: "b-s2", Message: "\x1b[2J\n"}
	list.Items[0].Spec.Process = "\x1b]0;x\a"
	s.answering(list)
	out, errOut, err := s.run(t.Context(), t, "sessions")
	require.NoError(t, err)
	assert.Equal(t, "Warning: node node-2 did not answer: their sessions are missing from the list; profiling continues there\n"+
		"Warning: the list does not contain all sessions of node node-1: select fewer, or name the sessions\n", errOut)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 7)
	assert.Regexp(t, `^NAME +CLAIM +POD +CONTAINER +PROCESS +STATE +SINCE +LAST COMMAND$`, lines[0])
	assert.Equal(t, []string{"a-w1", "gpu", "train", "main", "python3", "Waiting", "60m", "<none>"}, strings.Fields(lines[1]))
	assert.Equal(t, []string{"b-w2", "gpu", "train", "main", `\x1b]0;x\a`, "Waiting", "60m", "Start:", "Failed"}, strings.Fields(lines[2]))
	assert.Equal(t, []string{"", "CLAIM   ARMED", "gpu     no", "x       yes"}, lines[3:])

	out, _, err = s.run(t.Context(), t, "sessions", "-A", "-o", "wide", "--no-headers")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"team", "b-w2", "gpu", "train", "main", `\x1b]0;x\a`, "Waiting", "60m", "Start:", "Failed", "node-1", "7", "2023.4.4", "b-s2", `\x1b[2J\n`,
	}, strings.Fields(strings.Split(out, "\n")[1]))
	assert.Contains(t, out, "\nteam   x     yes\n")
	assert.NotContains(t, out, "\x1b")
	out, _, err = s.run(t.Context(), t, "sessions", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "session.profiles.gpu.prism.dev/a-w1\nsession.profiles.gpu.prism.dev/b-w2\n", out)
	out, _, err = s.run(t.Context(), t, "sessions", "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "kind: SessionList\n")
	assert.Contains(t, out, "armed: true\n")
	assert.Contains(t, out, "silentNodes:\n")

	s.answering(v1alpha1.SessionList{Claims: list.Claims[:1]})
	out, errOut, err = s.run(t.Context(), t, "sessions")
	require.NoError(t, err)
	assert.Equal(t, "CLAIM   ARMED\nx       yes\n", out)
	assert.Equal(t, "No sessions found in namespace team; processes of claims with start: Manual wait for recordings; to see why a process does not, run: "+
		"kubectl prism profile check POD\n", errOut)
}

// TestSessions_OlderController_Named: its API serves reports only, and refuses all other paths like this.
func TestSessions_OlderController_Named(t *testing.T) {
	s := newServer(t)
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		status(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, strings.ToLower(r.Method)+" is not supported on resources of kind \"reports\"")
		return true
	}
	for args, doing := range map[string]string{
		"sessions": "listing sessions", "start --all": "listing sessions", "stop a-w1": "stopping sessions", "arm gpu": "arming claims",
	} {
		_, errOut, err := s.run(t.Context(), t, strings.Fields(args)...)
		require.Error(t, err)
		assert.Contains(t, errOut+err.Error(),
			doing+" in namespace team: the controller of this cluster is of a version without sessions; an administrator can upgrade the chart of Prism")
	}
	_, _, err := newServer(t).run(t.Context(), t, "sessions", "--all-namespaces", "-l", "a in b")
	require.ErrorContains(t, err, "--selector: ")
}

// TestRecord_InvalidFlags_NothingRequested: flags are validated before the first request.
func TestRecord_InvalidFlags_NothingRequested(t *testing.T) {
	s := newServer(t)
	for args, want := range map[string]string{
		"start":                                "no sessions are selected: specify names of sessions, flags such as --pod or -l, or --all; kubectl prism profile start -h lists the flags",
		"stop -A":                              "no sessions are selected: specify names of sessions, flags such as --pod or -l, or --all; kubectl prism profile stop -h lists the flags",
		"cancel a-w1 --pod x":                  "names of sessions and flags that select them are mutually exclusive",
		"start a-w1 -A":                        "names of sessions and flags that select them are mutually exclusive",
		"start a-w1 --all":                     "names of sessions and flags that select them are mutually exclusive",
		"start a-w1 --duration 0s":             "--duration: must be greater than 0 and at most 24h, got 0s",
		"start a-w1 --duration -1s":            "--duration: must be greater than 0 and at most 24h, got -1s",
		"start a-w1 --duration 24h1ns":         "--duration: must be greater than 0 and at most 24h, got 24h0m0.000000001s",
		"start a-w1 --at 2026-01-02T15:04:05Z": "--at: requires --duration: the recordings cover a window",
		"start a-w1 --duration 1s --at 15:04":  `--at: must be a time such as 2026-01-02T15:04:05Z, got "15:04"`,
		"start a-w1 --sampling-frequency 99":   "--sampling-frequency: must be from 100 to 8000, got 99",
		"start a-w1 --sampling-frequency 8001": "--sampling-frequency: must be from 100 to 8000, got 8001",
		"start a-w1 --backtrace fp":            `--backtrace: unsupported value "fp"; supported values: None, LBR, FramePointer, DWARF`,
		"start report/a-s1":                    `"report/a-s1" is not a session; kubectl prism profile sessions prints the names`,
		"start A_1":                            `"A_1" is not the name of a session; kubectl prism profile sessions prints the names`,
		"arm session/x":                        `"session/x" is not a resourceclaim; kubectl get resourceclaims prints the names`,
		"disarm":                               "requires at least 1 arg(s), only received 0",
		"stop --all --duration 1s":             "unknown flag: --duration",
		"start --field-selector spec.claim":    "--field-selector: invalid selector: 'spec.claim'; can't understand 'spec.claim'",
	} {
		_, _, err := s.run(t.Context(), t, strings.Fields(args)...)
		require.EqualError(t, err, want, args)
	}
	names := []string{"start"}
	for i := range 1001 {
		names = append(names, fmt.Sprintf("a-w%d", i))
	}
	_, _, err := s.run(t.Context(), t, names...)
	require.EqualError(t, err, "1001 sessions are named; at most 1000 are allowed: use several commands")
	names[0] = "disarm"
	_, _, err = s.run(t.Context(), t, names...)
	require.EqualError(t, err, "1001 claims are named; at most 1000 are allowed: use several commands")
	assert.Empty(t, s.asked(""))
}

// TestRecord_Flags_ReachTheAPI: through a whole command, with the clock of the test.
func TestRecord_Flags_ReachTheAPI(t *testing.T) {
	s := newServer(t)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://cluster.example\"}}]\n"+
		"users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		var command v1alpha1.SessionCommand
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				assert.NoError(t, json.NewDecoder(r.Body).Decode(&command))
				command.Status = v1alpha1.SessionCommandStatus{Accepted: 1, Names: command.Spec.Sessions}
				answer(w, http.StatusCreated, command)
				return true
			}
			one := sessionOf("team", "a-w1")
			one.Status.LastCommand = &v1alpha1.LastCommand{
				ID: command.Spec.ID, Verb: "Start", Outcome: "Recorded", Report: "a-s1", Message: "\x1b[2J",
				Begun: command.Spec.At, Ended: new(metav1.NewMicroTime(command.Spec.At.Add(time.Hour))),
			}
			answer(w, http.StatusOK, v1alpha1.SessionList{Items: []v1alpha1.Session{one}})
			return true
		}
		flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(c *rest.Config) *rest.Config {
			c.Transport = direct{s}
			return c
		})
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		root := &cobra.Command{Use: "kubectl-prism", SilenceErrors: true, SilenceUsage: true}
		flags.AddFlags(root.PersistentFlags())
		root.AddCommand(profile.Command(flags, streams))
		root.SetArgs(strings.Fields("profile start session/a-w1 a-w1 --duration 30s --at 2000-01-01T01:00:30+01:00 --sampling-frequency 500 --backtrace DWARF --kubeconfig " + config))
		require.NoError(t, root.ExecuteContext(t.Context()))
		assert.Empty(t, errOut.String())
		assert.Equal(t, "a-w1 (train/main python3): Recorded, began 2000-01-01T00:00:30.000Z, report a-s1: \\x1b[2J\n"+
			"1 of 1 recorded the whole window of 30s from 2000-01-01T00:00:30.000Z\n", out.String())
		assert.Equal(t, []string{"a-w1"}, command.Spec.Sessions)
		assert.Equal(t, 30*time.Second, command.Spec.Duration.Duration)
		assert.Equal(t, int32(500), *command.Spec.SamplingFrequencyHz)
		assert.Equal(t, "DWARF", *command.Spec.Backtrace)
	})
}

// direct is a transport without a network.
type direct struct{ *server }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.serve(w, r)
	return w.Result(), nil
}
