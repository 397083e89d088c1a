// Package prepare is the transaction around a claim: it locks the claim and its GPUs, has a plan made, stores what it is
// about to do before the first hardware effect, does it, writes the CDI spec, and answers from the record. Unprepare undoes
// in reverse and deletes the record last; it needs neither the API server nor the claim.
//
// A claim without hardware effects costs one durable write. What cannot be undone becomes a pending cleanup: the record stays, in state
// Releasing, and the cleanup is retried before a claim gets what it occupies.
//
// The package knows no step, no library and no file: it declares the ports it needs. A step may contribute to the claim's CDI spec
// (Editor), to its status (StatusReporter) and to the metrics (Measured).
package prepare
