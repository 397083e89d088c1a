// Package gpus contains the commands of kubectl prism that show the GPUs of a cluster and explain why pods wait for them (explain, map, top,
// capacity, defragment, ui), and kubectl prism gpu, which lists GPUs and takes one out of service for maintenance. The latter writes
// annotations of the Node, which the kubelet plugin reads; the others change nothing.
package gpus
