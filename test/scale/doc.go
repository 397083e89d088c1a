// Package scale measures the cost of a published layout for the scheduler: the time and the CEL evaluations of filtering one node, the sets
// of devices that the counters admit, how well the order of devices packs, and the pods per second that a real scheduler places on fake
// nodes. Prism's layouts are compared with models of the two layouts of NVIDIA's DRA driver in the same run on the same machine, so that
// the ratios are comparable between machines.
//
// `make bench-scale` runs all of it. Only the counts are asserted by tests.
package scale
