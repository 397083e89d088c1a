// Package checkpoint stores the promises made to each claim: one durable record per claim, and the locks that order the work on claims and
// GPUs within a process and between two plugin processes of a rolling update.
//
// A record file is a header line {"schema","crc32c","len"} and a JSON body. The checksum covers the bytes on disk, never a re-encoding.
// Unknown keys are kept when the record is written again, so that an older plugin can run for a while without losing keys of a newer one. A
// record with a newer schema or an unknown state is left unchanged for the version that knows it. A record that cannot be read is renamed
// and fails only its own claim.
package checkpoint
