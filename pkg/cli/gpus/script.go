package gpus

import (
	"encoding/json"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

const (
	// taintName is the name of the taint, and of the label of its rules, below the driver's domain.
	taintName = "defragment"
	// waitLimit is how long the commands wait for the pod.
	waitLimit = "10m"
	// commandWidth is the width of lines that can be broken.
	commandWidth = 80
)

// script are the commands of a plan.
type script struct {
	plan *explain.Plan
	// version is the version of DeviceTaintRules, kubectl begins the command lines.
	version, kubectl string
}

// planJSON is a plan with its rules and commands.
type planJSON struct {
	*explain.Plan `json:",inline"`
	// Rules are the DeviceTaintRules of the commands.
	Rules    []resourceapi.DeviceTaintRule `json:"deviceTaintRules"`
	Commands string                        `json:"commands"`
}

// key is the key of the taint and of the label.
func (s *script) key() string { return s.plan.Target.Driver + "/" + taintName }

// value is the value of the taint: the pod's name if it can be one.
func (s *script) value() string {
	if len(validation.IsValidLabelValue(s.plan.Pod)) == 0 {
		return s.plan.Pod
	}
	return string(s.plan.UID)
}

// ruleName returns the name of the rule of a device. It is unique for a pod.
func (s *script) ruleName(device string) string {
	const short = 8
	uid := string(s.plan.UID)
	return taintName + "-" + uid[:min(len(uid), short)] + "-" + device
}

// rules returns the rules.
func (s *script) rules() []resourceapi.DeviceTaintRule {
	var all []resourceapi.DeviceTaintRule
	for _, device := range s.plan.Tainted {
		all = append(all, resourceapi.DeviceTaintRule{
			TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.GroupName + "/" + s.version, Kind: "DeviceTaintRule"},
			ObjectMeta: metav1.ObjectMeta{Name: s.ruleName(device), Labels: map[string]string{s.key(): string(s.plan.UID)}},
			Spec: resourceapi.DeviceTaintRuleSpec{
				DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &s.plan.Target.Driver, Pool: &s.plan.Target.Pool, Device: &device},
				Taint:          resourceapi.DeviceTaint{Key: s.key(), Value: s.value(), Effect: resourceapi.DeviceTaintEffectNoSchedule},
			},
		})
	}
	return all
}

// text are the commands in four steps, to be copied one after the other.
func (s *script) text() string {
	return fmt.Sprintf("# 1. No new claim gets a device that overlaps %s.\n", s.plan.Target.Device) + s.taint() +
		"# 2. Evict the pods. Repeat a command that a PodDisruptionBudget refuses.\n" + s.evict() +
		"# 3. Wait for the scheduler.\n" + s.wait() +
		"# 4. Remove the taints, also after an error.\n" + s.removal()
}

// program is a shell script that removes the taints at its end, also after an error.
func (s *script) program() string {
	// A shell that a signal ends need not run the trap of its exit.
	return "#!/bin/sh\nset -e\n" + "trap " + quote(strings.TrimSpace(s.removal())) + " EXIT\n" + "trap 'exit 1' HUP INT TERM\n" +
		s.taint() + s.evict() + s.wait()
}

// taint creates the rules.
func (s *script) taint() string {
	var out strings.Builder
	out.WriteString("for device in")
	width := len("for device in")
	for _, device := range s.plan.Tainted {
		if width+len(" "+device+" \\") > commandWidth {
			out.WriteString(" \\\n ")
			width = 1
		}
		out.WriteString(" " + device)
		width += len(" " + device)
	}
	fmt.Fprintf(&out, "; do\n%s create -f - <<EOF\n", s.kubectl)
	fmt.Fprintf(&out, "apiVersion: %s/%s\nkind: DeviceTaintRule\nmetadata:\n  name: %s\n", resourceapi.GroupName, s.version, s.ruleName("$device"))
	fmt.Fprintf(&out, "  labels: {%s: %q}\n", s.key(), s.plan.UID)
	fmt.Fprintf(&out, "spec:\n  deviceSelector:\n    driver: %q\n    pool: %q\n    device: \"$device\"\n", s.plan.Target.Driver, s.plan.Target.Pool)
	fmt.Fprintf(&out, "  taint: {key: %s, value: %q, effect: NoSchedule}\nEOF\ndone\n", s.key(), s.value())
	return out.String()
}

// evict evicts the pods by the Eviction API, which respects budgets. The UID spares a pod of the same name that was created in the meantime.
func (s *script) evict() string {
	var out strings.Builder
	for i := range s.plan.Moves {
		m := &s.plan.Moves[i]
		eviction, _ := json.Marshal(map[string]any{ // strings can always be encoded
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]string{"namespace": m.Namespace, "name": m.Pod},
			"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": m.UID}},
		})
		fmt.Fprintf(&out, "%s create -f - --raw /api/v1/namespaces/%s/pods/%s/eviction <<'EOF'\n%s\nEOF\n", s.kubectl, m.Namespace, m.Pod, eviction)
	}
	return out.String()
}

// wait waits until the pod has its device.
func (s *script) wait() string {
	return fmt.Sprintf("%s wait -n %s pod/%s \\\n  --for=condition=PodScheduled --timeout=%s\n", s.kubectl, s.plan.Namespace, s.plan.Pod, waitLimit)
}

// removal deletes the rules.
func (s *script) removal() string {
	return fmt.Sprintf("%s delete devicetaintrules -l %s=%s\n", s.kubectl, s.key(), s.plan.UID)
}

// quote quotes a word for a shell, if it has other characters than names and paths.
func quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=,+"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
