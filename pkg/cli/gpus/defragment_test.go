package gpus

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// planned is a plan that moves two pods.
func planned() *explain.Plan {
	return &explain.Plan{
		Namespace: "ml", Pod: "train-0", UID: "5f0c7a52-9d1e-4f7b-8f0a-3f2f6f1f7d10",
		Target: explain.Target{
			Node: "gpu-a07", Driver: driverName, Pool: "gpu-a07/gpu-46b93708", Device: "gpu-46b93708-mig-9-0", GPU: "gpu-46b93708", Profile: "3g.40gb", Size: 4,
		},
		Moves: []explain.Move{
			{Namespace: "web", Pod: "rank-x2", UID: "11111111-9d1e-4f7b-8f0a-3f2f6f1f7d10", Owner: "Deployment/rank", Devices: "1g.10gb at 2", To: "gpu-a02"},
			{Namespace: "web", Pod: "a-pod-with-a-rather-long-name-0", UID: "22222222-9d1e-4f7b-8f0a-3f2f6f1f7d10", Owner: "StatefulSet/a-pod-with-a-rather-long-name", Devices: "1g.20gb at 0", To: "gpu-a03"},
		},
		Tainted: []string{
			"gpu-46b93708", "gpu-46b93708-mig-19-3", "gpu-46b93708-mig-19-2", "gpu-46b93708-mig-19-1", "gpu-46b93708-mig-19-0", "gpu-46b93708-mig-15-2",
			"gpu-46b93708-mig-15-0",
		},
		Notes: []string{"pod ml/train-1 waits too, and could get the device first"},
	}
}

func TestPlanText_TwoPods_TableAndCommands(t *testing.T) {
	t.Parallel()
	s := &script{plan: planned(), version: "v1", kubectl: "kubectl --context=prod"}
	golden(t, "defragment", planText(wide80, planned())+"\n"+s.text())
	golden(t, "defragment-40", planText(wide40, planned()))
	golden(t, "defragment-commands", s.program())
}

func TestScript_Rules_AsInCommands(t *testing.T) {
	t.Parallel()
	s := &script{plan: planned(), version: "v1beta2", kubectl: "kubectl"}
	ran := runWith(t, s, "")
	created := ran.stdins("create -f -")
	rules := s.rules()
	require.Len(t, created, len(rules))
	for i := range rules {
		var got resourceapi.DeviceTaintRule
		require.NoError(t, yaml.UnmarshalStrict([]byte(created[i]), &got))
		assert.Equal(t, rules[i], got)
	}
}

func TestScript_Run_AllSteps(t *testing.T) {
	t.Parallel()
	ran := runWith(t, &script{plan: planned(), version: "v1", kubectl: "kubectl"}, "")
	require.NoError(t, ran.err)
	last := ran.calls[len(ran.calls)-4:]
	assert.Equal(t, []string{
		"create -f - --raw /api/v1/namespaces/web/pods/rank-x2/eviction",
		"create -f - --raw /api/v1/namespaces/web/pods/a-pod-with-a-rather-long-name-0/eviction",
		"wait -n ml pod/train-0 --for=condition=PodScheduled --timeout=10m",
		"delete devicetaintrules -l gpu.prism.dev/defragment=5f0c7a52-9d1e-4f7b-8f0a-3f2f6f1f7d10",
	}, last)
	var eviction map[string]any
	require.NoError(t, json.Unmarshal([]byte(ran.stdins("create -f - --raw")[0]), &eviction))
	assert.Equal(t, map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"namespace": "web", "name": "rank-x2"},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": "11111111-9d1e-4f7b-8f0a-3f2f6f1f7d10"}},
	}, eviction)
}

// TestScript_StepFails_OnlyTaintsRemoved: without all taints no pod is evicted, and the taints do not stay.
func TestScript_StepFails_OnlyTaintsRemoved(t *testing.T) {
	t.Parallel()
	s := &script{plan: planned(), version: "v1", kubectl: "kubectl"}
	for failing, want := range map[string]int{"mig-19-1": 5, "rank-x2/eviction": 9, "wait": 11} {
		ran := runWith(t, s, failing)
		require.Error(t, ran.err, failing)
		require.Len(t, ran.calls, want, failing)
		assert.True(t, strings.HasPrefix(ran.calls[want-1], "delete devicetaintrules -l "), failing)
	}
}

func TestQuote_Words_OneShellWord(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"/home/me/.kube/config": "/home/me/.kube/config", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$(id)": "'$(id)'", "user@host": "user@host",
	} {
		assert.Equal(t, want, quote(word))
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(word)).Output()
		require.NoError(t, err)
		assert.Equal(t, word, string(out))
	}
}

func TestKubectl_ConnectionFlags_WithoutSecrets(t *testing.T) {
	t.Parallel()
	line, secrets := kubectl(&genericclioptions.ConfigFlags{})
	assert.Equal(t, "kubectl", line)
	assert.Empty(t, secrets)
	flags := genericclioptions.NewConfigFlags(false)
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(set)
	line, secrets = kubectl(flags)
	assert.Equal(t, "kubectl", line)
	assert.Empty(t, secrets)
	const given = "--kubeconfig=/k --context=c --cluster=d --user=u --server=https://s:1 --tls-server-name=t --certificate-authority=/ca " +
		"--client-certificate=/cert --client-key=/key --as=jane --as-uid=1 --proxy-url=http://p:2 --as-group=a --as-group=b --as-user-extra=k=v " +
		"--insecure-skip-tls-verify"
	require.NoError(t, set.Parse(append(strings.Fields(given), "--token=secret")))
	line, secrets = kubectl(flags)
	assert.Equal(t, "kubectl "+given, line)
	assert.Equal(t, []string{"--token"}, secrets)
	require.NoError(t, set.Parse([]string{"--proxy-url=http://me:secret@p:2", "--context=a b", "--as-group=c d"}))
	line, secrets = kubectl(flags)
	assert.Contains(t, line, " --context='a b' ")
	assert.Contains(t, line, " --as-group='c d'")
	assert.NotContains(t, line, "secret")
	assert.Equal(t, []string{"--token", "--proxy-url"}, secrets)
	// Flags of the connection that a later version of the library adds are noticed here.
	others := []string{"cache-dir", "disable-compression", "namespace", "request-timeout", "token"}
	set.VisitAll(func(flag *pflag.Flag) {
		assert.True(t, slices.Contains(others, flag.Name) || strings.Contains(given, "--"+flag.Name), flag.Name)
	})
}

// shellRun is a run of a script with a kubectl that only notes its arguments and its stdin.
type shellRun struct {
	err    error
	calls  []string
	inputs []string
}

// stdins returns the inputs of the calls that begin with a text and, if the text has no --raw, have none either.
func (r *shellRun) stdins(prefix string) (all []string) {
	for i, call := range r.calls {
		if strings.HasPrefix(call, prefix) && strings.Contains(call, "--raw") == strings.Contains(prefix, "--raw") {
			all = append(all, r.inputs[i])
		}
	}
	return all
}

// runWith runs the commands. The call fails whose arguments or stdin contain a text; "" for none.
func runWith(t *testing.T, s *script, failing string) *shellRun {
	t.Helper()
	dir := t.TempDir()
	kubectl := "#!/bin/sh\nn=$(ls " + dir + " | grep -c ^call)\nn=$(printf %03d $n)\nprintf '%s' \"$*\" > " + dir + "/call$n\n" +
		"case \"$*\" in create*) cat > " + dir + "/stdin$n;; esac\n"
	if failing != "" {
		kubectl += "if cat " + dir + "/call$n " + dir + "/stdin$n 2>/dev/null | grep -q -e '" + failing + "'; then exit 1; fi\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plan.sh"), []byte(s.program()), 0o600))
	command := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "plan.sh"))
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	ran := &shellRun{err: err}
	t.Logf("%s", out)
	calls, globErr := filepath.Glob(filepath.Join(dir, "call*"))
	require.NoError(t, globErr)
	for _, file := range calls {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		ran.calls = append(ran.calls, string(text))
		input, _ := os.ReadFile(strings.Replace(file, "/call", "/stdin", 1)) // other calls than create have none
		ran.inputs = append(ran.inputs, string(input))
	}
	return ran
}

// TestScript_SignalWhileItWaits_TaintsRemoved: not every shell runs the trap of its exit if a signal ends it.
func TestScript_SignalWhileItWaits_TaintsRemoved(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"INT", "TERM", "HUP"} {
		dir := t.TempDir()
		stub := "#!/bin/sh\ncase $1 in\nwait) kill -" + signal + " $PPID;;\ndelete) echo removed >> \"$0.log\";;\nesac\ncat > /dev/null < /dev/null\n"
		kubectl := filepath.Join(dir, "kubectl")
		require.NoError(t, os.WriteFile(kubectl, []byte(stub), 0o700))
		program := (&script{plan: planned(), version: "v1", kubectl: kubectl}).program()
		require.Error(t, exec.CommandContext(t.Context(), "/bin/sh", "-c", program).Run())
		log, err := os.ReadFile(kubectl + ".log")
		require.NoError(t, err, signal)
		assert.Equal(t, "removed\n", string(log), signal)
	}
}

// TestScript_NamesLikeNumbers_Texts: in YAML a name such as 1001 would be a number.
func TestScript_NamesLikeNumbers_Texts(t *testing.T) {
	t.Parallel()
	plan := planned()
	plan.Target.Pool, plan.Tainted = "1001", []string{"7", "true"}
	s := &script{plan: plan, version: "v1", kubectl: "kubectl"}
	created := runWith(t, s, "").stdins("create -f -")
	require.Len(t, created, 2)
	for i := range created {
		var got resourceapi.DeviceTaintRule
		require.NoError(t, yaml.UnmarshalStrict([]byte(created[i]), &got))
		assert.Equal(t, s.rules()[i], got)
	}
}
