package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExporter_WholeGPU_NamesThePod: both pages show the GPU's values, as set by a script of the hardware, for the pod while it has the
// GPU. They contain the selected label of the pod from the time at which the pod started.
func TestExporter_WholeGPU_NamesThePod(t *testing.T) {
	ns := inParallel(t, 1)
	began := time.Now()
	ns.apply("whole-gpu/pod.yaml")
	g := &ns.grantedTo(ns.ready("whole-gpu"), "gpu")[0]
	ns.do("label", "--overwrite", "pod/whole-gpu", "app=changed")
	its := use{"whole-gpu", 2, 60}
	ns.works(its)
	ns.usedBy(began, g, its)
	ns.addsUp(g)
	p := ns.prometheus()
	eventually(t, startLimit, func() error { return p.dcgmUsed(g, ns.container(its), its.bytes()/(1<<20)) })
	eventually(t, startLimit, func() error { return p.labelled(g, ns.container(its), "whole-gpu") })
	// Families of GPUs name no container, so they must not get the labels of the exporter's own pod.
	found, err := p.ask(`{job=%q,__name__=~"prism_(gpu|mig|exporter)_.+",__name__!="prism_gpu_allocation_info",pod!=""}`, podMonitorJob)
	require.NoError(t, err)
	assert.Empty(t, found, "a series without container shows the exporter's labels")

	ns.must(t, ns.simgpu("load", fmt.Sprint(g.Index), "sm=35", "power=450", "temperature=66")...)
	t.Cleanup(func() { ns.must(t, ns.simgpu("load", fmt.Sprint(g.Index))...) })
	ns.has(g, map[string]float64{
		"prism_gpu_utilization_ratio": 0.35, "prism_gpu_power_usage_watts": 450, "prism_gpu_temperature_celsius": 66, utilizationMetric: 0.35,
	})
	ns.onlyUsedBy(began, g, its)
	ns.delete("pod", "whole-gpu")
	eventually(t, startLimit, func() error {
		return errors.Join(p.dcgmUsed(g, "//", 0), ns.isUsed(p, usedMetric, g, nil, nil))
	})
	ns.checkNothingKept()
}

// dcgmUsed returns an error unless dcgm-exporter's metric of used memory has one series of the GPU, with this container and this number of
// MiB.
func (p *prometheus) dcgmUsed(g *grant, container string, mebibytes float64) error {
	found, err := p.ask("DCGM_FI_DEV_FB_USED{job=%q,UUID=%q}", podMonitorJob, g.UUID)
	if err == nil && (len(found) != 1 || found[0].container() != container || found[0].value != mebibytes) {
		err = fmt.Errorf("DCGM_FI_DEV_FB_USED is %v, not %g of %s", found, mebibytes, container)
	}
	return err
}

// labelled returns an error unless, on both pages, the pod's label "app" equals this value in the series that name the container with the
// GPU.
func (p *prometheus) labelled(g *grant, container, app string) (err error) {
	for query, label := range map[string]string{
		fmt.Sprintf("%s{%s}", usedMetric, g.selector()): "label_app", fmt.Sprintf("prism_gpu_allocation_info{%s}", g.selector()): "label_app",
		fmt.Sprintf("DCGM_FI_DEV_FB_USED{job=%q,UUID=%q}", podMonitorJob, g.UUID): "app",
	} {
		found, err2 := p.ask("%s", query)
		if err2 == nil && (len(found) != 1 || found[0].container() != container || found[0].labels[label] != app) {
			err2 = fmt.Errorf("%s is %v, not of %s with %s=%q", query, found, container, label, app)
		}
		err = errors.Join(err, err2)
	}
	return err
}

// has waits until Prometheus shows these values of a GPU.
func (ns *namespace) has(g *grant, values map[string]float64) {
	ns.t.Helper()
	p := ns.prometheus()
	eventually(ns.t, startLimit, func() (err error) {
		for _, metric := range slices.Sorted(maps.Keys(values)) {
			value, err2 := p.number("%s{job=%q,gpu_uuid=%q}", metric, podMonitorJob, g.gpu())
			if err2 == nil && math.Abs(value-values[metric]) > 1e-9 {
				err2 = fmt.Errorf("%s is %g, not %g", metric, value, values[metric])
			}
			err = errors.Join(err, err2)
		}
		return err
	})
}

// TestTimeSliceMetrics_TwoPods_EachItsOwn: a process counts for its own pod.
func TestTimeSliceMetrics_TwoPods_EachItsOwn(t *testing.T) {
	ns := timeSlicingInParallel(t)
	began := time.Now()
	ns.createShare("first", sharedGPUs[0])
	g := ns.share("first", "share")
	ns.createShare("second", sharedGPUs[0])
	ns.share("second", "share")
	first, second := use{"first", 2, 40}, use{"second", 1, 20}
	ns.works(first)
	ns.works(second)
	ns.usedBy(began, &g, first, second)
	ns.addsUp(&g)
	ns.onlyUsedBy(began, &g, first, second)
}

// TestMIGMetrics_DeviceMadeAgain_OfTheNewPod: the series of a MIG device name its current pod, although its UUID is the same as before, and
// the new pod gets no value of the former one.
func TestMIGMetrics_DeviceMadeAgain_OfTheNewPod(t *testing.T) {
	ns := migInParallel(t)
	first, second := use{"first", 2, 60}, use{"second", 1, 30}
	create := func(u use) *grant {
		ns.createMIG(u.pod, "4g.40gb", firstMIG) // the profile has one placement
		g := ns.migDevice(u.pod)
		ns.works(u)
		return &g
	}
	began := time.Now()
	g := create(first)
	ns.usedBy(began, g, first)
	ns.addsUp(g)
	ns.onlyUsedBy(began, g, first)
	ns.delete("pod", "first")
	again := create(second)
	require.Equal(t, g.UUID, again.UUID, "a recreated MIG device keeps its UUID")
	working := time.Now()
	ns.usedBy(working, again, second)
	ns.addsUp(again)
	ns.onlyUsedBy(working, again, second)
	ns.onlyUsedBy(began, again, first, second)
	ns.must(t, ns.simgpu("load", again.UUID, "sm=45")...) // until the MIG device is destroyed
	ns.has(again, map[string]float64{"prism_mig_utilization_ratio": 0.45, utilizationMetric: 0.45})
}

// TestMPSMetrics_TwoPods_EachItsOwn: clients of MPS count for their pods, the memory of the server for no pod.
func TestMPSMetrics_TwoPods_EachItsOwn(t *testing.T) {
	ns, index := mpsOnOneGPU(t)
	began := time.Now()
	first, second := use{"first", 2, 40}, use{"second", 1, 20}
	ns.create(mpsPod("first", index, "8Gi"), mpsPod("second", index, "4Gi"))
	g := ns.grantedTo(ns.ready("first"), "share")[0]
	require.Equal(t, g.UUID, ns.grantedTo(ns.ready("second"), "share")[0].UUID)
	ns.works(first)
	ns.works(second)
	ns.usedBy(began, &g, first, second)
	ns.addsUp(&g)
	ns.onlyUsedBy(began, &g, first, second)
}

// TestPrometheus_Monitors_ScrapeTheSame: the targets of the chart's monitors are up, and the exporter's two monitors get the same values of
// each GPU.
func TestPrometheus_Monitors_ScrapeTheSame(t *testing.T) {
	ns := inParallel(t, 0)
	p := ns.prometheus()
	eventually(t, startLimit, func() (err error) {
		for query, want := range map[string]float64{
			fmt.Sprintf(`sum(up{job=%q,node=%q,namespace="",pod="",container=""})`, podMonitorJob, nodeName):     2, // two pages
			fmt.Sprintf(`sum(up{job=%q,node=%q,namespace="",pod="",container=""})`, serviceMonitorJob, nodeName): 1,
			fmt.Sprintf(`sum(up{job=%q})`, pluginJob):                                                            1,
			// A GPU in MIG mode reports no utilization.
			fmt.Sprintf("count(%[1]s{job=%[2]q} and on (gpu_uuid, node) %[1]s{job=%[3]q}) - count(%[1]s{job=%[3]q})",
				"prism_gpu_utilization_ratio", serviceMonitorJob, podMonitorJob): 0,
		} {
			value, err2 := p.number("%s", query)
			if err2 == nil && value != want {
				err2 = fmt.Errorf("%s is %g, not %g", query, value, want)
			}
			err = errors.Join(err, err2)
		}
		return err
	})
}

// TestExporter_XIDInjected_AlertFiresOnce: the first XID error of a GPU causes one alert that keeps firing and names the code.
func TestExporter_XIDInjected_AlertFiresOnce(t *testing.T) {
	ns := inParallel(t, 0)
	ns.gpus.exporter.Lock() // no exporter is killed meanwhile: it would miss the error
	t.Cleanup(ns.gpus.exporter.Unlock)
	p := ns.prometheus()
	boards, err := ns.boards()
	require.NoError(t, err)
	var quiet board
	eventually(t, startLimit, func() error {
		found, err := p.ask(`prism_gpu_xid_errors_total{job=%q} == 0 unless on (gpu_uuid) ALERTS{alertname="PrismGPUXIDError"}`, podMonitorJob)
		if err == nil && len(found) == 0 {
			err = errors.New("found no GPU with 0 XID errors in total")
		}
		for _, s := range found {
			quiet = boards[s.labels["gpu_uuid"]]
		}
		return err
	})
	ns.must(t, ns.simgpu("inject", "xid", "13", "--gpu", fmt.Sprint(quiet.Ordinal))...)
	of, alert := fmt.Sprintf("gpu_uuid=%q", quiet.UUID), fmt.Sprintf(`alertname="PrismGPUXIDError",gpu_uuid=%q`, quiet.UUID)
	eventually(t, startLimit, func() error {
		_, err := p.number(`ALERTS{alertstate="firing",%s}`, alert)
		return err
	})
	p.evaluates(t, 3, func() error {
		firing, err := p.number(`count(ALERTS{%s}) + sum(changes(ALERTS_FOR_STATE{%[1]s}[1m]))`, alert)
		// A scrape that took too long leaves a gap. Each pod of the exporter in these minutes has its own series.
		total, err2 := p.number(`max(last_over_time(prism_gpu_xid_errors_total{job=%q,%s}[10m]))`, podMonitorJob, of)
		if err == nil && (firing != 1 || total != 1) {
			err = fmt.Errorf("%g alerts for %g XID errors", firing, total)
		}
		return errors.Join(err, err2)
	})
	eventually(t, startLimit, func() error {
		_, err := p.number(`prism_gpu_xid_errors_total{job=%q,%s} == 1`, podMonitorJob, of)
		return err
	})
	assert.Contains(t, p.xidAlert(t, quiet.UUID), "The last code is 13.")
}

// xidAlert returns the description of the only alert about XID errors of a GPU.
func (p *prometheus) xidAlert(t *testing.T, uuid string) string {
	t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct{ Labels, Annotations map[string]string }
		}
	}
	text, err := p.get("/api/v1/alerts", nil)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answer))
	var found []string
	for _, alert := range answer.Data.Alerts {
		if alert.Labels["alertname"] == "PrismGPUXIDError" && alert.Labels["gpu_uuid"] == uuid {
			found = append(found, alert.Annotations["description"])
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// TestExporter_Killed_SameNames: a new process finds the same names again, also the name of a new pod, and Prometheus sees no error in
// between.
func TestExporter_Killed_SameNames(t *testing.T) {
	ns := inParallel(t, 1)
	ns.gpus.exporter.Lock()
	t.Cleanup(ns.gpus.exporter.Unlock)
	began := time.Now()
	ns.apply("whole-gpu/pod.yaml")
	g := &ns.grantedTo(ns.ready("whole-gpu"), "gpu")[0]
	its := use{"whole-gpu", 1, 50}
	ns.works(its)
	ns.usedBy(began, g, its)

	pod, err := ns.exporter()
	require.NoError(t, err)
	ns.must(t, ns.onNode("kill", "-KILL", ns.pid(t, pod))...)
	killed := time.Now()
	ns.usedBy(killed, g, its)
	t.Logf("the names were back %.1f s after the exporter was killed", time.Since(killed).Seconds())
	ns.must(t, ns.kubectl("delete", "pod", pod.Name, "--namespace", system, "--wait=false")...)
	deleted := time.Now()
	eventually(t, startLimit, func() error { return ns.gone(pod) }) // it still measures until it is gone
	ns.usedBy(time.Now(), g, its)
	t.Logf("the names were back %.1f s after the exporter's pod was deleted", time.Since(deleted).Seconds())
	ns.addsUp(g)
	ns.onlyUsedBy(began, g, its)
}
