// Package ui is the command kubectl prism ui: a page on the loopback interface that shows the GPUs of a cluster, their claims and the pods
// that wait for them. The page is read-only, uses the rights of the kubeconfig, and can be written as one file.
package ui
