package claim

// KindCounters is the kind of the extension that records the performance counters of GPUs. Its data of a claim is a *gpu.CounterOptions; its
// data of a result is an empty object: the counters that the result reserves are recorded.
const KindCounters = "counters"
