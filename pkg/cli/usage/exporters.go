package usage

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
)

// MostNodes is the number of nodes up to which exporter pods are asked one by one.
const MostNodes = 50

const (
	// exporters selects the exporter pods, whatever the release is named.
	exporters = "app.kubernetes.io/part-of=prism,app.kubernetes.io/component=exporter"
	// parallel is the number of exporters that are asked at once.
	parallel = 8
	// largestPage bounds the page of an exporter, in bytes: thousands of containers need less.
	largestPage = 64 << 20
	// metricsPort is the name of the exporter's port.
	metricsPort = "metrics"
	// webConfig is set in exporters that require TLS.
	webConfig = "PRISM_WEB_CONFIG_FILE"
)

// Exporters asks the exporter pods of nodes through the API server. on selects nodes. Exporters that did not answer are in failed, one
// sentence each; without any answer, the first is the error.
func Exporters(ctx context.Context, client kubernetes.Interface, on func(node string) bool) (samples []Sample, failed []error, err error) {
	all, err := cluster.Pods(ctx, client, metav1.ListOptions{LabelSelector: exporters})
	if err != nil {
		return nil, nil, err
	}
	pods := slices.DeleteFunc(all, func(pod corev1.Pod) bool { return !exports(&pod) || !on(pod.Spec.NodeName) })
	switch {
	case len(pods) == 0:
		return nil, nil, fmt.Errorf("no pods of prism-exporter found: set exporter.enabled in the chart, or --prometheus")
	case len(pods) > MostNodes:
		return nil, nil, fmt.Errorf("%d nodes have exporters, and more than %d are not asked one by one: set --prometheus", len(pods), MostNodes)
	}
	pages, errs := make([][]Sample, len(pods)), make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range pods {
		group.Go(func() error {
			pages[i], errs[i] = ask(ctx, client, &pods[i])
			return nil
		})
	}
	_ = group.Wait() // errors are in errs
	for i := range pods {
		samples = append(samples, pages[i]...)
		if errs[i] != nil {
			failed = append(failed, errs[i])
		}
	}
	if len(failed) == len(pods) {
		return nil, nil, failed[0]
	}
	return samples, failed, nil
}

// exports reports whether a pod is an exporter on a node. Tenants may create pods with any labels, but, with Pod Security, none in the process
// namespace of the host, in which exporters are.
func exports(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" && pod.Spec.HostPID }

// ask reads the page of an exporter.
func ask(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	scheme, port := "", "9400"
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == metricsPort {
				port = strconv.Itoa(int(p.ContainerPort))
			}
		}
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == webConfig }) {
			scheme = "https"
		}
	}
	doing := fmt.Sprintf("reading metrics of node %s from pod %s/%s", pod.Spec.NodeName, pod.Namespace, pod.Name)
	page, err := client.CoreV1().Pods(pod.Namespace).ProxyGet(scheme, pod.Name, port, "metrics", nil).Stream(ctx)
	if err != nil {
		return nil, cluster.Explain(doing, "get on pods/proxy in namespace "+pod.Namespace, err)
	}
	defer page.Close()
	text, err := readAtMost(page, largestPage)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	samples, err := Parse(bytes.NewReader(text), pod.Spec.NodeName)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return samples, nil
}
