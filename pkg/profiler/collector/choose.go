package collector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

// outcome is how a try ended, and why.
type outcome struct {
	reason  counters.Reason
	message string
	// busy are the GPUs that another program uses; only with PerfmonBusy.
	busy []counters.GPU
}

// listing is the profiler's list of the GPUs of the node.
type listing struct {
	devices []nsight.MetricsDevice
	// rest is its other text; failed is the error of the profiler.
	rest   string
	failed error
}

// list asks the profiler for the GPUs of the node.
func list(ctx context.Context, p profiler) listing {
	text, err := p.help(ctx, nsight.DevicesHelp(p.tool())...)
	l := listing{failed: err}
	l.devices, l.rest = nsight.MetricsDevices(text)
	return l
}

// find returns the index of a GPU, or why its counters cannot be recorded.
func (l listing) find(gpu counters.GPU) (index int, o outcome) {
	address := nsight.PCIAddress(gpu.PCIAddress)
	var found *nsight.MetricsDevice
	for i, d := range l.devices {
		// One of both sections may repeat the GPU.
		if d.PCIAddress == address && (found == nil || !d.Supported) {
			found = &l.devices[i]
		}
	}
	switch {
	case found == nil && l.failed != nil:
		o.reason, o.message = explain(l.rest+"\n"+l.failed.Error(), counters.Failed)
		return 0, o
	case found == nil:
		// Without a text about it, the text of the list is no explanation.
		if o.reason, o.message = explain(l.rest, ""); o.reason == "" {
			o = outcome{reason: counters.Unsupported, message: "the profiler does not list the GPU"}
		}
		return 0, o
	}
	otherwise := counters.Unsupported
	if found.Supported && found.Index >= 0 {
		otherwise = ""
	}
	if o.reason, o.message = explain(found.Note, otherwise); o.reason == "" {
		return found.Index, outcome{}
	}
	o.message = cmp.Or(o.message, "the profiler does not support the GPU")
	return 0, o
}

// severity orders the reasons of several GPUs: others than PerfmonBusy do not change by waiting.
var severity = []counters.Reason{counters.Failed, counters.InsufficientPrivilege, counters.Unsupported, counters.PerfmonBusy}

// findAll returns the indices of GPUs, or why their counters cannot be recorded.
func (l listing) findAll(gpus []counters.GPU) (indices []int, worst outcome) {
	var busy []counters.GPU
	for _, gpu := range gpus {
		index, o := l.find(gpu)
		indices = append(indices, index)
		if o.reason == counters.PerfmonBusy {
			busy = append(busy, gpu)
		}
		if o.reason != "" && (worst.reason == "" || slices.Index(severity, o.reason) < slices.Index(severity, worst.reason)) {
			worst = outcome{reason: o.reason, message: sentence(gpu.UUID + ": " + o.message)}
		}
	}
	if worst.reason == counters.PerfmonBusy {
		worst.busy = busy
	}
	return indices, worst
}

// choose returns the switches for an order, or why it cannot be carried out.
func choose(ctx context.Context, p profiler, order *counters.Order) (nsight.Commands, outcome) {
	indices, o := list(ctx, p).findAll(order.GPUs)
	if o.reason != "" {
		return nsight.Commands{}, o
	}
	switches := nsight.CounterSwitches{Devices: indices, FrequencyHz: order.FrequencyHz}
	if order.MetricSet != "" {
		if switches.MetricSet, o = metricSet(ctx, p, order.MetricSet); o.reason != "" {
			return nsight.Commands{}, o
		}
	}
	commands, err := nsight.Counters(switches, p.tool(), order.Manual)
	if err != nil {
		return commands, outcome{reason: counters.Unsupported, message: sentence(err.Error())}
	}
	return commands, outcome{}
}

// metricSet returns the argument for a set of metrics.
func metricSet(ctx context.Context, p profiler, alias string) (string, outcome) {
	text, err := p.help(ctx, nsight.SetsHelp()...)
	argument, known := nsight.MetricSet(text, alias)
	switch {
	case argument != "":
		return argument, outcome{}
	case err != nil:
		reason, message := explain(text+"\n"+err.Error(), counters.Failed)
		return "", outcome{reason: reason, message: message}
	}
	return "", outcome{reason: counters.Unsupported, message: sentence(fmt.Sprintf(
		"metricSet %s is not supported by Nsight Systems %s; supported values: %s", alias, p.tool().Version, strings.Join(known, ", ")))}
}
