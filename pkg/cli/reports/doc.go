// Package reports requests reports of profiled processes, and sessions, from the aggregated API profiles.gpu.prism.dev, as the user of a
// kubeconfig, and explains failures to that user.
package reports
