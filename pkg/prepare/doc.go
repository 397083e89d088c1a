// Package prepare is the transaction around a claim: it locks the claim and its GPUs, has a plan made, stores what it is
// about to do before the first hardware effect, does it, writes the CDI spec, and answers from the record. Unprepare undoes
// in reverse and deletes the record last; it needs neither the API server nor the claim.
//
// A claim without hardware effects costs one durable write. What cannot be undone becomes a debt: the record stays, in state
// Releasing, and is paid before its GPU is given to anybody.
//
// The package knows no step, no library and no file: it declares the ports it needs.
package prepare
