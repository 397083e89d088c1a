// Package bench measures what a claim costs: how long the kubelet waits for it, and what is done on the way.
//
// It plays the kubelet towards the plugin that the chart installed, on a real API server and a simulated GPU node: the same
// binary, sockets, directories and service account as in production. What must not depend on the machine is counted and
// asserted: durable writes, programs run, NVML calls, API calls. Times are printed beside the floor of the machine, which is
// measured in the same minute.
//
// The counts are taken three ways. Ordinary tests of this package wire the product's packages to ports that count. The program
// prism-bench asks the simulated driver for the NVML calls of the plugin's process, traces its system calls, and runs a second
// plugin behind a Gate that sees every API call.
package bench
