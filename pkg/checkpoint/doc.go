// Package checkpoint keeps what was promised to each claim: one durable record per claim, and the locks that order the work on
// claims and GPUs within a process and between two plugin processes of a rolling update.
//
// A record file is a header line {"schema","crc32c","len"} and a JSON body. The checksum is over the bytes on disk, never
// over a re-encoding. Keys that this version does not know are kept when the record is written again, so that an older
// plugin can run for a while without losing what a newer one wrote. A record of a newer schema, or in a state that this version
// does not know, is left as it is for the version that knows it. A record that cannot be read is set aside and fails only
// its own claim.
package checkpoint
