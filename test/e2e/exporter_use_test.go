package e2e

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const (
	usedMetric        = "prism_container_gpu_memory_used_bytes"
	utilizationMetric = "prism_container_gpu_utilization_ratio"
	exporterSelector  = "app.kubernetes.io/component=exporter"
	// contextBytes is the memory of a CUDA context.
	contextBytes = contextMiB << 20
)

// gpuLoad returns simgpu's program that works on a GPU; the test copies it into containers.
var gpuLoad = sync.OnceValues(func() (string, error) {
	c, err := connected()
	if err != nil {
		return "", err
	}
	bundle, err := c.run("", filepath.Join(c.root, "bin/simgpu"), "build")
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(filepath.Join(strings.TrimSpace(bundle), "tool/gpu-load"))
	return string(program), err
})

// use describes how a container uses a device: the memory of its process without the context, and its share of the SMs in percent.
type use struct {
	pod                string
	gibibytes, percent int
}

// bytes returns the memory, including the context.
func (u use) bytes() float64 { return float64(u.gibibytes<<30 + contextBytes) }

// works starts gpu-load in the pod's container main, and returns when it works.
func (ns *namespace) works(u use) {
	ns.t.Helper()
	program, err := gpuLoad()
	require.NoError(ns.t, err)
	script := fmt.Sprintf(`cat >/tmp/gpu-load.$$ && chmod 755 /tmp/gpu-load.$$ && mv /tmp/gpu-load.$$ /tmp/gpu-load || exit
: >/tmp/gpu-load.out; /tmp/gpu-load --memory %dGi --sm %d >>/tmp/gpu-load.out 2>&1 </dev/null & load=$!
for i in $(seq 9000); do grep -q working /tmp/gpu-load.out && exit; kill -0 $load 2>/dev/null || break; sleep 0.1; done
cat /tmp/gpu-load.out; exit 1`, u.gibibytes, u.percent)
	out, err := ns.run(program, ns.execLine(u.pod, "main", "sh", "-c", script)...)
	require.NoError(ns.t, err, "gpu-load in %s does not work: %s", u.pod, out)
}

// exporter returns the ready pod of the exporter on the node.
func (c *cluster) exporter() (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.get(&pods, "pods", "--namespace", system, "--selector", exporterSelector); err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("found %d exporters, want 1", len(pods.Items))
	}
	pod := &pods.Items[0]
	if statuses := pod.Status.ContainerStatuses; len(statuses) != 1 || !statuses[0].Ready {
		return nil, fmt.Errorf("exporter pod %s is not ready: %+v", pod.Name, statuses)
	}
	return pod, nil
}

// freshExporter returns an exporter that never restarted, so that the kubelet restarts it immediately when it exits.
func (c *cluster) freshExporter(t *testing.T) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	ready := func() (err error) {
		pod, err = c.exporter()
		return err
	}
	eventually(t, startLimit, ready)
	if pod.Status.ContainerStatuses[0].RestartCount == 0 {
		return pod
	}
	c.must(t, c.kubectl("rollout", "restart", "--namespace", system, "daemonset/prism-exporter")...)
	c.must(t, c.kubectl("rollout", "status", "--namespace", system, "daemonset/prism-exporter", "--timeout="+startLimit.String())...)
	eventually(t, startLimit, ready)
	return pod
}

// selector returns the selector of a device's series on the exporter's own page.
func (g *grant) selector() string {
	mig := ""
	if g.Type == "mig" {
		mig = g.UUID
	}
	return fmt.Sprintf("job=%q,gpu_uuid=%q,mig_uuid=%q", podMonitorJob, g.gpu(), mig)
}

// usedBy waits until Prometheus shows exactly these containers of the namespace on the device, with their values, in a sample that was
// taken after the time.
func (ns *namespace) usedBy(after time.Time, g *grant, uses ...use) {
	ns.t.Helper()
	p := ns.prometheus()
	eventually(ns.t, startLimit, func() error {
		sampled, err := p.number("prism_exporter_sample_timestamp_seconds{job=%q,gpu_uuid=%q}", podMonitorJob, g.gpu())
		if err == nil && sampled < float64(after.UnixNano())/1e9 {
			err = fmt.Errorf("the last sample is of %f, before %s", sampled, after)
		}
		return errors.Join(err, ns.isUsed(p, usedMetric, g, uses, func(u use) (float64, float64) { return u.bytes(), 0 }),
			ns.isUsed(p, utilizationMetric, g, uses, func(u use) (float64, float64) { return float64(u.percent) / 100, 0.05 }))
	})
}

// isUsed returns an error unless the metric has exactly these containers on the device, with the values of want within their tolerance.
func (ns *namespace) isUsed(p *prometheus, metric string, g *grant, uses []use, want func(use) (float64, float64)) error {
	found, err := p.ask("%s{%s}", metric, g.selector())
	if err != nil {
		return err
	}
	if len(found) != len(uses) {
		return fmt.Errorf("%d series, not %d: %v", len(found), len(uses), found)
	}
	values := map[string]float64{}
	for _, s := range found {
		values[s.container()] = s.value
	}
	for _, u := range uses {
		value, known := values[ns.container(u)]
		if wanted, tolerance := want(u); !known || math.Abs(value-wanted) > tolerance {
			err = errors.Join(err, fmt.Errorf("%s of %s is not %g: %v", metric, ns.container(u), wanted, found))
		}
	}
	return err
}

// container returns the name of the container in the labels of the series.
func (s *series) container() string {
	return s.labels["namespace"] + "/" + s.labels["pod"] + "/" + s.labels["container"]
}

func (ns *namespace) container(u use) string { return ns.name + "/" + u.pod + "/main" }

// onlyUsedBy checks all series of the device since a time: no other container, never more memory than these use, and never two containers
// at once on an unshared device.
func (ns *namespace) onlyUsedBy(since time.Time, g *grant, uses ...use) {
	ns.t.Helper()
	p := ns.prometheus()
	past := max(1, int(time.Since(since).Seconds()))
	found, err := p.ask("max_over_time(%s{%s}[%ds])", usedMetric, g.selector(), past)
	require.NoError(ns.t, err)
	most := map[string]float64{}
	for _, u := range uses {
		most[ns.container(u)] = max(most[ns.container(u)], u.bytes())
	}
	for _, s := range found {
		limit, known := most[s.container()]
		require.True(ns.t, known, "%s was named, not only %v", s.container(), uses)
		require.LessOrEqual(ns.t, s.value, limit, "memory of %s", s.container())
	}
	if g.Type != "timeslice" && g.Type != "mps" {
		atOnce, err := p.ask("max_over_time(count(%s{%s})[%ds:1s]) > 1", usedMetric, g.selector(), past)
		require.NoError(ns.t, err)
		require.Empty(ns.t, atOnce, "containers on %s at once", g.UUID)
	}
}

// addsUp waits until the sums of Prometheus over containers, the MIG device and the GPU equal the hardware's values.
func (ns *namespace) addsUp(g *grant) {
	ns.t.Helper()
	p := ns.prometheus()
	of := fmt.Sprintf("job=%q,gpu_uuid=%q", podMonitorJob, g.gpu())
	eventually(ns.t, startLimit, func() error {
		gpu, device, err := ns.usedMemory(g)
		if err != nil {
			return err
		}
		sums := map[string]float64{
			"prism_gpu_memory_used_bytes{" + of + "}":                                                    gpu,
			"sum(" + usedMetric + "{" + of + "}) + sum(prism_gpu_unattributed_memory_bytes{" + of + "})": gpu,
		}
		if g.Type == "mig" {
			sums["prism_mig_memory_used_bytes{"+g.selector()+"}"] = device
			sums["sum("+usedMetric+"{"+g.selector()+"})"] = device
		}
		for query, want := range sums {
			value, err2 := p.number("%s", query)
			if err2 == nil && value != want {
				err2 = fmt.Errorf("%s is %.0f, and the hardware has %.0f in use", query, value, want)
			}
			err = errors.Join(err, err2)
		}
		return err
	})
}

// usedMemory returns the used memory of the GPU of a device, and the memory of the device's processes, as the hardware reports them.
func (c *cluster) usedMemory(g *grant) (gpu, device float64, err error) {
	gpus, err := c.partitions()
	if err != nil {
		return 0, 0, err
	}
	for i := range gpus {
		if gpus[i].UUID != g.gpu() {
			continue
		}
		for _, process := range gpus[i].Processes {
			if instance := gpus[i].instance(g.UUID); g.Type != "mig" || process.GPUInstance == instance {
				device += process.Memory
			}
		}
		return gpus[i].MemoryUsed, device, nil
	}
	return 0, 0, fmt.Errorf("found no GPU %s in the hardware", g.gpu())
}

// instance returns the GPU instance of a MIG device, -1 without one.
func (p *partitions) instance(uuid string) int {
	for _, instance := range p.Instances {
		if instance.UUID == uuid {
			return instance.GPUInstance
		}
	}
	return -1
}

// isNotMeasured waits until Prometheus shows no value of a GPU or of a container on it, and no GPU that responds.
func (ns *namespace) isNotMeasured(g *grant) {
	ns.t.Helper()
	p := ns.prometheus()
	const query = `{__name__=~"prism_(gpu|container)_.+(_watts|_ratio|_bytes|_joules_total)",gpu_uuid=%q} or prism_gpu_up{gpu_uuid=%[1]q} == 1`
	eventually(ns.t, startLimit, func() error {
		found, err := p.ask(query, g.gpu())
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("found %d values of GPU %s: %v", len(found), g.gpu(), found)
		}
		return err
	})
}

// countsAsDriver checks that a counter of the GPU equals the hardware's count since the driver was loaded, and nothing earlier.
func (ns *namespace) countsAsDriver(g *grant) {
	ns.t.Helper()
	var measured float64
	eventually(ns.t, startLimit, func() (err error) {
		measured, err = ns.prometheus().number("prism_gpu_energy_joules_total{job=%q,gpu_uuid=%q}", podMonitorJob, g.gpu())
		return err
	})
	gpus, err := ns.partitions() // read later, so not less
	require.NoError(ns.t, err)
	counted := gpus[g.Index].Load.Totals["power"]
	require.Positive(ns.t, measured)
	require.LessOrEqual(ns.t, measured, counted, "joules since the driver was loaded")
}
