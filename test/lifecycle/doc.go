// Package lifecycle runs the life of claims with the product's own packages on a simulated GPU node, and checks the laws of a
// claim on what is left on disk and in the hardware:
//
//   - preparing and unpreparing are idempotent;
//   - no device is owned twice;
//   - whatever was made is in a record, and nothing is left in the end;
//   - undoing restores what was before;
//   - a claim that was answered keeps its answer;
//   - what a GPU is offered as changes when no claim has what leaves;
//   - Unprepare always ends.
//
// A Machine outlives the processes that are started on it. Each fault point of the disk, of a lock, of the hook program, of the
// driver or of the hardware goes through the process's FaultPoint, which can count it, refuse it, or be the last thing that the
// process does. Processes are goroutines, where it is about the order of their fault points, or real ones with the driver's library
// (TestScenarios_ProcessKilled_Recovers), which end by SIGKILL; from their journal follows everything that a power cut at that moment may have
// left on disk.
//
// A new kind of effect plugs in as one line of Effects, a new life as one entry of scenarios: both are then killed, refused and
// cut off everywhere.
package lifecycle
