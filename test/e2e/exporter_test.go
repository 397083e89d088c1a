package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	usedMetric        = "prism_container_gpu_memory_used_bytes"
	utilizationMetric = "prism_container_gpu_utilization_ratio"
)

// works starts simgpu's gpu-load in the pod's container: it holds so much memory, the context included, and its work takes so many percent
// of the multiprocessors.
func (ns *namespace) works(pod, container string, gibibytes, percent int) {
	ns.t.Helper()
	bundle, err := ns.run("", filepath.Join(ns.root, "bin/simgpu"), "build")
	require.NoError(ns.t, err)
	program, err := os.ReadFile(filepath.Join(strings.TrimSpace(bundle), "tool/gpu-load"))
	require.NoError(ns.t, err)
	script := "cat >/tmp/gpu-load && chmod 755 /tmp/gpu-load"
	_, err = ns.run(string(program), ns.execLine(pod, container, "sh", "-c", script)...)
	require.NoError(ns.t, err)
	script = fmt.Sprintf("/tmp/gpu-load --memory %dGi --sm %d >/tmp/gpu-load.out 2>&1 </dev/null &", gibibytes, percent)
	_, err = ns.run("", ns.execLine(pod, container, "sh", "-c", script)...)
	require.NoError(ns.t, err)
}

// metricsPage is what the exporter of the cluster's one node serves.
func (ns *namespace) metricsPage(page string) (string, error) {
	names, err := ns.run("", ns.kubectl("--namespace", "prism-system", "get", "pods", "--selector", "app.kubernetes.io/component=exporter",
		"-o", "jsonpath={.items[*].metadata.name}")...)
	if err != nil {
		return "", err
	}
	pods := strings.Fields(names)
	if len(pods) != 1 {
		return "", fmt.Errorf("%d exporters, not 1", len(pods))
	}
	return ns.run("", ns.kubectl("get", "--raw", "/api/v1/namespaces/prism-system/pods/"+pods[0]+":9400/proxy"+page)...)
}

// measured is the value of the one series of the metric that has the labels.
func (ns *namespace) measured(page, metric string, labels ...string) (float64, error) {
	text, err := ns.metricsPage(page)
	if err != nil {
		return 0, err
	}
	var found []string
lines:
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, metric+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line, label) {
				continue lines
			}
		}
		found = append(found, strings.TrimSpace(line))
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%d series of %s with %v: %v", len(found), metric, labels, found)
	}
	return strconv.ParseFloat(found[0][strings.LastIndex(found[0], " ")+1:], 64)
}

// isMeasured waits until the exporter says so of the pod's container.
func (ns *namespace) isMeasured(pod, container string, gibibytes, percent int) {
	ns.t.Helper()
	labels := []string{fmt.Sprintf("namespace=%q", ns.name), fmt.Sprintf("pod=%q", pod), fmt.Sprintf("container=%q", container)}
	const contextBytes = contextMiB << 20
	eventually(ns.t, startLimit, func() error {
		used, err := ns.measured("/metrics", usedMetric, labels...)
		if err != nil {
			return err
		}
		if want := float64(gibibytes<<30 + contextBytes); used != want {
			return fmt.Errorf("%s uses %.0f bytes, not %.0f", pod, used, want)
		}
		utilization, err := ns.measured("/metrics", utilizationMetric, labels...)
		if err == nil && math.Abs(utilization-float64(percent)/100) > 0.05 {
			err = fmt.Errorf("%s has a utilization of %g, not %d %%", pod, utilization, percent)
		}
		return err
	})
}

// TestExporter_WholeGPU_NamesThePod: on both pages the GPU's values are those of the pod that has it, as long as it has it.
func TestExporter_WholeGPU_NamesThePod(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("whole-gpu/pod.yaml")
	g := ns.grantedTo(ns.ready("whole-gpu"), "gpu")[0]
	ns.works("whole-gpu", "main", 2, 60)
	ns.isMeasured("whole-gpu", "main", 2, 60)
	uuid, pod := fmt.Sprintf("UUID=%q", g.UUID), `pod="whole-gpu"`
	used, err := ns.measured("/metrics/dcgm", "DCGM_FI_DEV_FB_USED", uuid, pod, `container="main"`)
	require.NoError(t, err)
	require.InDelta(t, 2<<10+contextMiB, used, 0.5, "MiB")
	ns.delete("pod", "whole-gpu")
	eventually(t, startLimit, func() error {
		_, err := ns.measured("/metrics/dcgm", "DCGM_FI_DEV_FB_USED", uuid, `pod=""`)
		return err
	})
	ns.checkNothingKept()
}

// TestTimeSliceMetrics_TwoPods_EachItsOwn: a process counts for the pod that it is of.
func TestTimeSliceMetrics_TwoPods_EachItsOwn(t *testing.T) {
	ns := timeSlicingInParallel(t)
	ns.createShare("first", sharedGPUs[0])
	ns.share("first", "share")
	ns.createShare("second", sharedGPUs[0])
	ns.share("second", "share")
	ns.works("first", "main", 2, 40)
	ns.works("second", "main", 1, 20)
	ns.isMeasured("first", "main", 2, 40)
	ns.isMeasured("second", "main", 1, 20)
}

// TestMIGMetrics_DeviceMadeAgain_OfTheNewPod: the series of a MIG device are those of the pod that has it now, although its UUID is the same.
func TestMIGMetrics_DeviceMadeAgain_OfTheNewPod(t *testing.T) {
	ns := migInParallel(t)
	ns.apply("mig-memory/pod.yaml")
	ns.migDevice("mig-memory")
	ns.works("mig-memory", "main", 2, 60)
	ns.isMeasured("mig-memory", "main", 2, 60)
	ns.delete("pod", "mig-memory")
	ns.apply("mig-memory/pod.yaml")
	ns.migDevice("mig-memory")
	ns.works("mig-memory", "main", 1, 30)
	ns.isMeasured("mig-memory", "main", 1, 30)
}

// TestExporter_Killed_SameNames: a new exporter finds the same out again.
func TestExporter_Killed_SameNames(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("whole-gpu/pod.yaml")
	ns.ready("whole-gpu")
	ns.works("whole-gpu", "main", 1, 50)
	ns.isMeasured("whole-gpu", "main", 1, 50)
	_, err := ns.run("", ns.kubectl("--namespace", "prism-system", "delete", "pods", "--selector", "app.kubernetes.io/component=exporter")...)
	require.NoError(t, err)
	ns.isMeasured("whole-gpu", "main", 1, 50)
}
