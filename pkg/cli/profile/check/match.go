package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/profiler/processmatch"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// changes maps reasons to remedies.
var changes = map[string]string{
	report.ReasonToolNotInstalled:      "set another toolVersion, or ask an administrator for profiler.tools",
	report.ReasonNotAllowed:            "change the ProfilerConfig, or ask an administrator to change profiler.policy",
	report.ReasonPerfEventsUnavailable: "remove cpuSampling, or ask an administrator to allow perf events on the node",
	report.ReasonPreloadNotPossible:    "remove the volume or the file at /etc/ld.so.preload from the container",
	report.ReasonStaticOrMusl:          "use an image with glibc whose programs are linked dynamically",
	report.ReasonSanitizerNotSupported: "profile a build without the sanitizer",
	report.ReasonNoProcessMatched:      "compare match with the command lines of the processes, for example with kubectl exec POD -- ps -ef",
	report.ReasonRangeNotReached:       "open the NVTX range or call cudaProfilerStart in the process, or set start: Immediate",
	report.ReasonFellBackUnprofiled:    "see the message of the condition",
	report.ReasonSlotsTaken:            "raise match.maxSessions",
	report.ReasonSeveralProfiles:       "keep the ProfilerConfig in one claim of the container",
	report.ReasonStoreFull:             "remove reports with kubectl prism profile rm, or raise output.maxBytes",
}

// byConditions returns the verdict according to the node's conditions of a prepared claim, or nil if no condition decides it.
func byConditions(conditions []metav1.Condition) *Verdict {
	verdict := func(answer Answer, c *metav1.Condition) *Verdict {
		v := &Verdict{answer, fmt.Sprintf("%s is %s with reason %s", c.Type, c.Status, c.Reason), ""}
		if c.Message != "" {
			v.Because += ": " + strings.TrimSuffix(c.Message, ".")
		}
		if answer == No {
			v.Change = changes[c.Reason]
		}
		return v
	}
	if c := meta.FindStatusCondition(conditions, conditionProfiler); c != nil && c.Status == metav1.ConditionFalse {
		return verdict(No, c)
	}
	c := meta.FindStatusCondition(conditions, conditionProfiling)
	available := meta.FindStatusCondition(conditions, conditionReport)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		return verdict(Yes, c)
	case available != nil && available.Status == metav1.ConditionTrue:
		return verdict(Yes, available)
	case c != nil && c.Status == metav1.ConditionFalse && changes[c.Reason] != "":
		return verdict(No, c)
	}
	return nil
}

// matches returns the verdict according to the command of a container. Processes that the command starts are matched too, but unknown here.
func matches(m *v1alpha1.ProcessMatch, of *corev1.Container) Verdict {
	rules, err := processmatch.Rules(m, pattern.Compile)
	if err != nil {
		return Verdict{No, "the node will refuse the claim: " + err.Error(), "correct match"}
	}
	wanted := "the first process that is not excluded is profiled"
	if *m.Regex != "" {
		wanted = "processes that match " + *m.Regex + " are profiled"
	}
	if len(of.Command) == 0 {
		return Verdict{Depends, wanted + ", and the pod does not show the entrypoint of image " + of.Image + "", ""}
	}
	argv := slices.Concat(of.Command, of.Args)
	line := strings.Join(argv, " ")
	switch {
	case rules.Target == pattern.Executable && !strings.HasPrefix(argv[0], "/"):
		return Verdict{Depends, wanted + ", and the path of " + argv[0] + " in the image is not known", ""}
	case rules.Match(argv, argv[0]):
		return Verdict{Yes, wanted + ", and the command of the container qualifies: " + line, ""}
	}
	for _, inner := range script(argv) {
		if rules.Match(inner, inner[0]) {
			return Verdict{Yes, wanted + ", and a command in the script of the container qualifies: " + strings.Join(inner, " "), ""}
		}
	}
	why := ", and the command of the container does not qualify"
	if slices.Contains(rules.Names, base(argv[0])) {
		why = ", and " + base(argv[0]) + " is excluded by default"
	}
	return Verdict{Depends, wanted + why + "; only processes that it starts can be profiled: " + line,
		"change match to profile the command itself"}
}

// script returns the commands that a shell runs with -c, as far as they are plain words.
func script(argv []string) [][]string {
	if len(argv) < 3 || !slices.Contains([]string{"ash", "bash", "dash", "sh", "zsh"}, base(argv[0])) || !strings.HasSuffix(argv[1], "c") ||
		!strings.HasPrefix(argv[1], "-") {
		return nil
	}
	var commands [][]string
	for _, command := range strings.FieldsFunc(argv[2], func(r rune) bool { return strings.ContainsRune(";&|\n", r) }) {
		words := strings.Fields(command)
		for len(words) > 0 && (words[0] == "exec" || strings.Contains(words[0], "=")) {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
