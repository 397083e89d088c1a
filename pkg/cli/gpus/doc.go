// Package gpus is the command kubectl prism gpu: it lists GPUs, and takes one out of service for maintenance. Commands are annotations of the
// Node, which the kubelet plugin reads.
package gpus
