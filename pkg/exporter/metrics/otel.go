package metrics

import (
	"math"
	"slices"
	"time"
)

// OTelResource is a resource in OpenTelemetry, the node or a container, with metrics of the hardware conventions.
type OTelResource struct {
	Attributes []OTelAttribute
	Metrics    []OTelMetric
}

// OTelAttribute is an attribute of a resource or a point.
type OTelAttribute struct{ Key, Value string }

// OTelKind is the instrument of a metric.
type OTelKind uint8

// The instruments.
const (
	OTelGauge OTelKind = iota
	// OTelCounter is a sum that only grows.
	OTelCounter
	// OTelUpDownCounter is a sum over devices.
	OTelUpDownCounter
)

// OTelMetric is a metric with its points; Unit is a UCUM unit.
type OTelMetric struct {
	Name, Description, Unit string
	Kind                    OTelKind
	Points                  []OTelPoint
}

// OTelPoint is one value. Start is the begin of a sum: the time when the claim was prepared, zero while it is unknown. Gauges have none.
type OTelPoint struct {
	Attributes []OTelAttribute
	Value      float64
	Start      time.Time
}

// otelRow defines the metric of a field in OpenTelemetry.
type otelRow struct {
	field      Field
	name, unit string
	kind       OTelKind
	// board is set if only a GPU has it.
	board      bool
	help       string
	attributes []OTelAttribute
}

var otelTable = []otelRow{
	{FieldMemoryTotal, "hw.gpu.memory.limit", "By", OTelUpDownCounter, false, "Memory of the device.", nil},
	{FieldMemoryUsed, "hw.gpu.memory.usage", "By", OTelUpDownCounter, false, "Memory in use.", nil},
	{FieldUtilization, "hw.gpu.utilization", "1", OTelGauge, false, "Utilization of the device.", task("general")},
	{FieldUtilizationEncoder, "hw.gpu.utilization", "1", OTelGauge, false, "Utilization of the device.", task("encoder")},
	{FieldUtilizationDecoder, "hw.gpu.utilization", "1", OTelGauge, false, "Utilization of the device.", task("decoder")},
	{FieldNVLinkTransmitted, "hw.gpu.io", "By", OTelCounter, true, "Data over NVLink.", direction("transmit")},
	{FieldNVLinkReceived, "hw.gpu.io", "By", OTelCounter, true, "Data over NVLink.", direction("receive")},
	{FieldECCCorrectedVolatile, "hw.errors", "{error}", OTelCounter, true, "ECC errors.", gpuOf("error.type", "corrected")},
	{FieldECCUncorrectedVolatile, "hw.errors", "{error}", OTelCounter, true, "ECC errors.", gpuOf("error.type", "uncorrected")},
	{FieldEnergy, "hw.energy", "J", OTelCounter, true, "Energy used.", gpuOf("", "")},
	{FieldPowerUsage, "hw.power", "W", OTelGauge, true, "Power draw.", gpuOf("", "")},
	{FieldTemperatureGPU, "hw.temperature", "Cel", OTelGauge, true, "Temperature.", gpuOf("", "")},
}

func task(name string) []OTelAttribute      { return []OTelAttribute{{"hw.gpu.task", name}} }
func direction(name string) []OTelAttribute { return []OTelAttribute{{"network.io.direction", name}} }

// gpuOf are the attributes of a metric that other hardware has too.
func gpuOf(key, value string) []OTelAttribute {
	of := []OTelAttribute{{"hw.type", "gpu"}}
	if key != "" {
		of = append(of, OTelAttribute{key, value})
	}
	return of
}

// OTel are the metrics for OpenTelemetry. An exclusive device is reported by its container; containers that share a device report their
// parts, and the node reports the rest, so that usage adds up. The node reports values from before a claim was prepared.
func (j *Joined) OTel() []OTelResource {
	node := newResource("host.name", j.exporter.Node, "k8s.node.name", j.exporter.Node)
	all := []*resource{node}
	containers := map[string]*resource{}
	of := func(d *device, h *holder) *resource {
		key := h.Namespace + "/" + h.Pod + "/" + h.Name
		if containers[key] == nil {
			containers[key] = newResource(j.container(&h.Container)...)
			all = append(all, containers[key])
		}
		containers[key].since = d.since(h)
		return containers[key]
	}
	for _, b := range j.boards {
		node.status(b)
		for _, d := range b.all {
			if !b.Up || d.mig == nil && len(b.migs) > 0 {
				continue
			}
			if d.exclusive() && !d.stale() {
				h := d.holders[0]
				of(d, h).device(d, h.memory)
				of(d, h).share(d, h.memory)
				if rest := b.rest(d); rest > 0 {
					node.usage(d, rest)
				}
				continue
			}
			if d.first { // its values cover all MIG devices of its GPU instance
				node.device(d, b.rest(d))
			}
			for _, h := range d.holders {
				of(d, h).part(d, h)
			}
		}
		if b.Up && len(b.migs) > 0 {
			node.board(b.whole)
		}
	}
	return withMetrics(all)
}

// container are the attributes of a container, alternating keys and values.
func (j *Joined) container(c *Container) []string {
	of := []string{
		"host.name", j.exporter.Node, "k8s.node.name", j.exporter.Node, "k8s.namespace.name", c.Namespace,
		"k8s.pod.name", c.Pod, "k8s.pod.uid", c.PodUID, "k8s.container.name", c.Name, "container.id", c.ID,
	}
	for i := range j.exporter.PodLabels {
		of = append(of, "k8s.pod.label."+j.exporter.PodLabels[i].Key, j.podLabel(c.PodUID, i))
	}
	return of
}

// since is the time when the claims of a container that uses the device were prepared; zero: before any round.
func (d *device) since(h *holder) (at time.Time) {
	for _, a := range d.allocations {
		if slices.Contains(h.claims, a.ClaimUID) && a.Since.After(at) {
			at = a.Since
		}
	}
	return at
}

// withMetrics are the resources that contain metrics.
func withMetrics(all []*resource) []OTelResource {
	var out []OTelResource
	for _, r := range all {
		if len(r.Metrics) > 0 {
			out = append(out, r.OTelResource)
		}
	}
	return out
}

// resource is an OTelResource under construction.
type resource struct {
	OTelResource
	byName map[string]int
	// since is the begin of the added sums.
	since time.Time
}

func newResource(pairs ...string) *resource {
	return &resource{OTelResource: OTelResource{Attributes: attributes(pairs...)}, byName: map[string]int{}}
}

// attributes converts alternating keys and values, without empty values.
func attributes(pairs ...string) []OTelAttribute {
	var list []OTelAttribute
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, OTelAttribute{pairs[i], bounded(pairs[i+1], maxText)})
		}
	}
	return list
}

func (r *resource) add(name, unit, help string, kind OTelKind, value float64, of ...[]OTelAttribute) {
	if math.IsNaN(value) {
		return
	}
	at, known := r.byName[name]
	if !known {
		at = len(r.Metrics)
		r.byName[name] = at
		r.Metrics = append(r.Metrics, OTelMetric{Name: name, Description: help, Unit: unit, Kind: kind})
	}
	point := OTelPoint{Value: value}
	if kind != OTelGauge {
		point.Start = r.since
	}
	for _, list := range of {
		point.Attributes = append(point.Attributes, list...)
	}
	r.Metrics[at].Points = append(r.Metrics[at].Points, point)
}

// status adds whether a GPU responds.
func (r *resource) status(b *board) {
	for _, state := range []string{"ok", "failed"} {
		r.add("hw.status", "1", "Whether the hardware is in the state.", OTelUpDownCounter, boolValue(b.Up == (state == "ok")), hardware(b.whole),
			gpuOf("hw.state", state))
	}
}

// device adds the values of a device; used is this resource's part of the memory in use.
func (r *resource) device(d *device, used float64) {
	for i := range otelTable {
		row := &otelTable[i]
		if row.board && d.mig != nil {
			continue
		}
		value := d.value(row.field)
		if row.field == FieldMemoryUsed {
			value = used
		}
		r.add(row.name, row.unit, row.help, row.kind, value, hardware(d), row.attributes)
	}
}

// board adds the values that only a GPU has.
func (r *resource) board(d *device) {
	for i := range otelTable {
		if row := &otelTable[i]; row.board {
			r.add(row.name, row.unit, row.help, row.kind, d.value(row.field), hardware(d), row.attributes)
		}
	}
}

// part adds the usage of a container on a shared device.
func (r *resource) part(d *device, h *holder) {
	r.usage(d, h.memory)
	r.share(d, h.memory)
	utilization := otelRowOf(FieldUtilization)
	r.add(utilization.name, utilization.unit, utilization.help, utilization.kind, h.utilization, hardware(d), utilization.attributes)
}

// usage adds memory in use.
func (r *resource) usage(d *device, used float64) {
	row := otelRowOf(FieldMemoryUsed)
	r.add(row.name, row.unit, row.help, row.kind, used, hardware(d))
}

// otelRowOf is the row of a field that must be in the table.
func otelRowOf(f Field) *otelRow {
	return &otelTable[slices.IndexFunc(otelTable, func(r otelRow) bool { return r.field == f })]
}

// share adds the memory in use as a ratio.
func (r *resource) share(d *device, used float64) {
	r.add("hw.gpu.memory.utilization", "1", "Memory in use as a ratio of the memory of the device.", OTelGauge, used/d.value(FieldMemoryTotal), hardware(d))
}

// rest is the memory in use of a device, or of its GPU instance, that no container uses.
func (b *board) rest(d *device) float64 {
	rest := d.value(FieldMemoryUsed)
	for _, h := range b.holdersOf(d) {
		if !math.IsNaN(h.memory) {
			rest -= h.memory
		}
	}
	return math.Max(0, rest)
}

// hardware are the attributes of a GPU or MIG device.
func hardware(d *device) []OTelAttribute {
	i := &d.gpu.Identity
	key := d.key()
	if d.mig != nil {
		return attributes("hw.id", string(key.mig), "hw.parent", string(key.gpu), "hw.name", d.mig.Profile, "hw.vendor", "NVIDIA",
			"hw.model", i.Name, "hw.driver_version", i.DriverVersion)
	}
	return attributes("hw.id", string(key.gpu), "hw.name", i.Name, "hw.vendor", "NVIDIA", "hw.model", i.Name, "hw.serial_number", i.Serial,
		"hw.driver_version", i.DriverVersion, "hw.firmware_version", i.VBIOS)
}
