// Package bench measures the cost of a claim: how long the kubelet waits for it, and which operations that takes.
//
// It plays the kubelet towards the plugin that the chart installed, on a real API server and a simulated GPU node: the same binary,
// sockets, directories and service account as in production. The tests count and assert everything that must not depend on the machine:
// durable writes, programs run, NVML calls, API calls. They print times beside the floor of the machine, measured in the same minute.
//
// There are three ways to count. Ordinary tests of this package wire the product's packages to ports that count. The program prism-bench
// asks the simulated driver for the NVML calls of the plugin's process, traces its system calls, and runs a second plugin behind a Gate
// that sees every API call.
package bench
