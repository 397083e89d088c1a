// The folder of a recording in the results of the claim: the note, the log of nsys and the report.
#ifndef PRISM_RUN_RECORDING_H
#define PRISM_RUN_RECORDING_H

#include "run.h"

// recording_begin begins the note in the recording's folder, which has its name already. It stays locked while this process runs, or until
// recording_end.
int recording_begin(struct run *run, int64_t started, int folder);

// recording_prepare creates the folder of the report, and gives a report that stays in the container a free name.
int recording_prepare(struct run *run);

// report_note returns whether nsys wrote a report, and notes the path of a report that stays in the container: if several ranges were
// recorded, there is one report for each.
bool report_note(struct run *run);

// recording_discard removes the files of the recording, but not its note.
void recording_discard(struct run *run);

// recording_end closes the recording of a process that waits for the next one.
void recording_end(struct run *run);

#endif
