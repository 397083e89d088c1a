// Package validate is the command kubectl prism validate: it checks on nodes whether pods can use GPUs, with a pod and a claim on each.
package validate
