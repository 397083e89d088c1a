// Package reports asks the aggregated API profiles.gpu.prism.dev for reports of profiled processes, as the user of a kubeconfig, and says in
// sentences for that user why it did not answer.
package reports
