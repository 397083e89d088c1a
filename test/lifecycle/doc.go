// Package lifecycle runs the life of claims with the product's own packages on a simulated GPU node, and checks the laws of a
// claim on what is left on disk and in the hardware:
//
//   - preparing and unpreparing are idempotent;
//   - no device is owned twice;
//   - whatever was made is in a record, and nothing is left in the end;
//   - a claim that was answered keeps its answer;
//   - Unprepare always ends.
//
// A Machine outlives the processes that are started on it. Each touch of the disk, of a lock or of the hardware goes through
// the process's Touch, which can count it, refuse it, or be the last thing that the process does. A new kind of effect plugs
// in as one line of Effects.
package lifecycle
