// Package scale measures what a published layout costs the scheduler: how long one node is filtered and how many CEL expressions that
// evaluates, which sets of devices the counters admit, how well the order of the devices packs, and how many pods a real scheduler
// places per second on fake nodes. Prism's layouts stand beside models of the two layouts of NVIDIA's DRA driver, in the same run on the
// same machine, so that the ratios hold where the times do not.
//
// `make bench-scale` runs all of it. Only the counts are asserted by tests.
package scale
