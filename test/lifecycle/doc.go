// Package lifecycle runs claims in plugins that plugin.Build has built on a simulated GPU node, and checks the invariants of a claim on
// the state of disk and hardware:
//
//   - Prepare and Unprepare are idempotent;
//   - no device has two owners;
//   - every effect is recorded, and nothing is left in the end;
//   - undoing an effect restores the previous state;
//   - a prepared claim keeps its result;
//   - the layout of a GPU changes only when the removed devices are not allocated;
//   - Unprepare always ends.
//
// A Machine outlives the processes on it. Every access to the disk, a lock, the hook program, the driver or the hardware is a
// FaultPoint of the process, which can be counted, can fail, or can be the last one before the process is killed. If the order of fault
// points matters, processes are goroutines; else they are real processes with the driver's library (TestScenarios_ProcessKilled_Recovers),
// which are killed by SIGKILL; their journal determines every state of the disk that a power cut at that moment may leave. Claims are
// prepared by the kubelet's calls; the background work of a plugin runs step by step.
//
// A new kind of effect is one line of Effects, a new scenario one entry of scenarios: both are then run with kills, faults and power
// cuts at every fault point.
package lifecycle
