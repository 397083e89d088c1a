// Package prepare is the transaction around a claim: it locks the claim and its GPUs, resolves a plan, stores the plan
// before the first hardware effect, executes it, writes the CDI spec, and answers from the record. Unprepare undoes
// in reverse and deletes the record last; it requires neither the API server nor the claim.
//
// A claim without hardware effects costs one durable write. An effect that cannot be undone becomes a pending cleanup: the record stays, in
// state Releasing, and the cleanup is retried before another claim is prepared on the occupied device.
//
// The package depends on no kind of step, no library and no file: it declares ports for them. A step may contribute to the claim's CDI spec
// (Editor), to its status (StatusReporter) and to the metrics (Measured).
package prepare
