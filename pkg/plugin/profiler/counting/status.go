package counting

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// Condition is the type of the condition of devices whose performance counters are recorded. Its reasons are the ones of package counters, and:
const (
	Condition = "PerfCountersAvailable"
	// ReasonPending: the collector has not acted on the order yet.
	ReasonPending = "Pending"
	// ReasonCollectorOff: the collector is switched off on the node.
	ReasonCollectorOff = "CollectorOff"
)

const (
	// maxEnded is the number of unprepared claims whose last condition is kept, while their last reports are imported.
	maxEnded = 256
	// maxWords limits the profiler's last output in a message, in bytes.
	maxWords = 512
)

// ended are the last conditions of claims that are no longer prepared: the collector's files about them are removed.
type ended struct {
	conditions map[string]kube.Condition // by claim UID
	order      []string                  // the claim that was unprepared first before others
}

func (e *ended) add(uid string, c kube.Condition) {
	e.remove(uid)
	e.conditions[uid], e.order = c, append(e.order, uid)
	if len(e.order) > maxEnded {
		e.remove(e.order[0])
	}
}

func (e *ended) remove(uid string) {
	if _, known := e.conditions[uid]; known {
		delete(e.conditions, uid)
		e.order = slices.DeleteFunc(e.order, func(other string) bool { return other == uid })
	}
}

// StatusData returns none.
func (*Extension) StatusData(*gpu.Node, *checkpoint.Record, *checkpoint.Result) map[string]any {
	return nil
}

// ConditionTypes returns Condition.
func (*Extension) ConditionTypes() []string { return []string{Condition} }

// RefusedCondition returns Condition.
func (*Extension) RefusedCondition() string { return Condition }

// StatusConditions returns the condition of a record.
func (e *Extension) StatusConditions(r *checkpoint.Record) []kube.Condition {
	e.mu.Lock()
	last, over := e.ended.conditions[r.Claim.UID]
	e.mu.Unlock()
	if over {
		return []kube.Condition{last}
	}
	return []kube.Condition{e.condition(e.read(r.Claim.UID))}
}

// read returns the state of a claim's order; the zero State if the collector has not acted yet.
func (e *Extension) read(uid string) counters.State {
	s, valid := counters.ParseState(readFile(e.path(uid, ""), counters.StateFile))
	if !valid {
		return counters.State{}
	}
	return s
}

// readFile returns the content of a file of the collector, nil if there is none that can be read.
func readFile(dir, name string) []byte {
	folder, err := untrusted.Open(dir)
	if err != nil {
		return nil
	}
	defer folder.Close()
	f, _, err := untrusted.File(folder, name, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, counters.MaxFile+1))
	if err != nil {
		return nil
	}
	return raw
}

// condition returns the condition of a state.
func (e *Extension) condition(s counters.State) kube.Condition {
	if !e.options.Enabled {
		return kube.Condition{
			Type: Condition, Reason: ReasonCollectorOff,
			Message: fmt.Sprintf("prism-collector does not run on node %s; set the chart's value profiler.collector.enabled to true.", e.options.NodeName),
		}
	}
	if s.Reason == "" {
		return kube.Condition{Type: Condition, Reason: ReasonPending, Message: fmt.Sprintf("prism-collector has not acted yet; if this lasts, check on "+
			"node %s the pod of the DaemonSet whose name ends in -collector.", e.options.NodeName)}
	}
	return kube.Condition{Type: Condition, True: s.Reason.Available(), Reason: string(s.Reason), Message: e.message(s)}
}

// message explains a state in one sentence.
func (e *Extension) message(s counters.State) string {
	words := untrusted.Escape(strings.TrimSpace(s.Message), maxWords)
	if words != "" {
		words = ": " + words
	}
	switch s.Reason {
	case counters.Waiting:
		return "The performance counters are available; kubectl prism profile start records them."
	case counters.Recording:
		return "The performance counters are recorded."
	case counters.Ended:
		return "The recording of the performance counters has ended after its duration."
	case counters.InsufficientPrivilege:
		return fmt.Sprintf("The driver of node %s reserves performance counters for administrators: RmProfilingAdminOnly is 1 in /proc/driver/nvidia/params, "+
			"and prism-collector lacks CAP_SYS_ADMIN; grant it, or set the option NVreg_RestrictProfilingToAdminUsers=0 of module nvidia%s", e.options.NodeName, sentence(words))
	case counters.PerfmonBusy:
		return "Another program, such as DCGM, uses the performance counters of a GPU; the recording begins once they are free" + sentence(words)
	case counters.Unsupported:
		return "Nsight Systems does not support the performance counters of the GPUs, their driver, or the metricSet" + sentence(words)
	default:
		return "Nsight Systems failed twice to record the performance counters" + sentence(words)
	}
}

// sentence ends a sentence with the profiler's last output.
func sentence(words string) string { return strings.TrimRight(words, ".") + "." }

// reportUnavailable writes an Event for a claim that is unprepared, and whose counters were not available: Kubernetes deletes the claim of a
// template, with its conditions, as soon as the pod has ended.
func (e *Extension) reportUnavailable(claim checkpoint.Claim, c kube.Condition) {
	if e.events != nil && !c.True {
		e.events.WarnOfClaim(claim.Namespace, claim.Name, claim.UID, events.ProfileIncomplete, events.ActionReconcile, c.Reason+": "+c.Message)
	}
}
