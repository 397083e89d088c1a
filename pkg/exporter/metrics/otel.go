package metrics

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// The instruments of OpenTelemetry, without points: a sum that only grows is a counter, a sum over devices goes up and down.
var (
	otelGauge         = metricdata.Gauge[float64]{}
	otelCounter       = metricdata.Sum[float64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	otelUpDownCounter = metricdata.Sum[float64]{Temporality: metricdata.CumulativeTemporality}
)

// otelRow defines the metric of a field in OpenTelemetry.
type otelRow struct {
	field      Field
	name, unit string
	kind       metricdata.Aggregation
	// board is set if only a GPU has it.
	board      bool
	help       string
	attributes []attribute.KeyValue
}

var otelTable = []otelRow{
	{FieldMemoryTotal, "hw.gpu.memory.limit", "By", otelUpDownCounter, false, "Memory of the device.", nil},
	{FieldMemoryUsed, "hw.gpu.memory.usage", "By", otelUpDownCounter, false, "Memory in use.", nil},
	{FieldUtilization, "hw.gpu.utilization", "1", otelGauge, false, "Utilization of the device.", task("general")},
	{FieldUtilizationEncoder, "hw.gpu.utilization", "1", otelGauge, false, "Utilization of the device.", task("encoder")},
	{FieldUtilizationDecoder, "hw.gpu.utilization", "1", otelGauge, false, "Utilization of the device.", task("decoder")},
	{FieldNVLinkTransmitted, "hw.gpu.io", "By", otelCounter, true, "Data over NVLink.", direction("transmit")},
	{FieldNVLinkReceived, "hw.gpu.io", "By", otelCounter, true, "Data over NVLink.", direction("receive")},
	{FieldECCCorrectedVolatile, "hw.errors", "{error}", otelCounter, true, "ECC errors.", gpuOf("error.type", "corrected")},
	{FieldECCUncorrectedVolatile, "hw.errors", "{error}", otelCounter, true, "ECC errors.", gpuOf("error.type", "uncorrected")},
	{FieldEnergy, "hw.energy", "J", otelCounter, true, "Energy used.", gpuOf("", "")},
	{FieldPowerUsage, "hw.power", "W", otelGauge, true, "Power draw.", gpuOf("", "")},
	{FieldTemperatureGPU, "hw.temperature", "Cel", otelGauge, true, "Temperature.", gpuOf("", "")},
}

func task(name string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("hw.gpu.task", name)}
}
func direction(name string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("network.io.direction", name)}
}

// gpuOf are the attributes of a metric that other hardware has too.
func gpuOf(key, value string) []attribute.KeyValue {
	of := []attribute.KeyValue{attribute.String("hw.type", "gpu")}
	if key != "" {
		of = append(of, attribute.String(key, value))
	}
	return of
}

// OTel are the metrics for OpenTelemetry. An exclusive device is reported by its container; containers that share a device report their
// parts, and the node reports the rest, so that usage adds up. The node reports values from before a claim was prepared. Sums begin when the
// claim was prepared; the time is zero while it is unknown.
func (j *Joined) OTel(now time.Time) []*metricdata.ResourceMetrics {
	node := newResource(now, "host.name", j.exporter.Node, "k8s.node.name", j.exporter.Node)
	all := []*otelResource{node}
	containers := map[string]*otelResource{}
	of := func(d *device, h *holder) *otelResource {
		key := h.Namespace + "/" + h.Pod + "/" + h.Name
		if containers[key] == nil {
			containers[key] = newResource(now, j.container(&h.Container)...)
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
func withMetrics(all []*otelResource) []*metricdata.ResourceMetrics {
	var out []*metricdata.ResourceMetrics
	for _, r := range all {
		if len(r.metrics) > 0 {
			out = append(out, &metricdata.ResourceMetrics{
				Resource: resource.NewSchemaless(r.attributes...), ScopeMetrics: []metricdata.ScopeMetrics{{Metrics: r.metrics}},
			})
		}
	}
	return out
}

// otelResource is a resource, the node or a container, under construction.
type otelResource struct {
	attributes []attribute.KeyValue
	metrics    []metricdata.Metrics
	byName     map[string]int
	// now is the time of the values, since the begin of the added sums.
	now, since time.Time
}

func newResource(now time.Time, pairs ...string) *otelResource {
	return &otelResource{attributes: attributes(pairs...), byName: map[string]int{}, now: now}
}

// attributes converts alternating keys and values, without empty values.
func attributes(pairs ...string) []attribute.KeyValue {
	var list []attribute.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, attribute.String(pairs[i], bounded(pairs[i+1], maxText)))
		}
	}
	return list
}

func (r *otelResource) add(name, unit, help string, kind metricdata.Aggregation, value float64, of ...[]attribute.KeyValue) {
	if math.IsNaN(value) {
		return
	}
	at, known := r.byName[name]
	if !known {
		at = len(r.metrics)
		r.byName[name] = at
		r.metrics = append(r.metrics, metricdata.Metrics{Name: name, Description: help, Unit: unit, Data: kind})
	}
	point := metricdata.DataPoint[float64]{Attributes: attribute.NewSet(slices.Concat(of...)...), Time: r.now, Value: value}
	switch data := r.metrics[at].Data.(type) {
	case metricdata.Gauge[float64]:
		data.DataPoints = append(data.DataPoints, point)
		r.metrics[at].Data = data
	case metricdata.Sum[float64]:
		point.StartTime = r.since
		data.DataPoints = append(data.DataPoints, point)
		r.metrics[at].Data = data
	}
}

// status adds whether a GPU responds.
func (r *otelResource) status(b *board) {
	if b.Released {
		return
	}
	for _, state := range []string{"ok", "failed"} {
		r.add("hw.status", "1", "Whether the hardware is in the state.", otelUpDownCounter, boolValue(b.Up == (state == "ok")), hardware(b.whole),
			gpuOf("hw.state", state))
	}
}

// device adds the values of a device; used is this resource's part of the memory in use.
func (r *otelResource) device(d *device, used float64) {
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
func (r *otelResource) board(d *device) {
	for i := range otelTable {
		if row := &otelTable[i]; row.board {
			r.add(row.name, row.unit, row.help, row.kind, d.value(row.field), hardware(d), row.attributes)
		}
	}
}

// part adds the usage of a container on a shared device.
func (r *otelResource) part(d *device, h *holder) {
	r.usage(d, h.memory)
	r.share(d, h.memory)
	utilization := otelRowOf(FieldUtilization)
	r.add(utilization.name, utilization.unit, utilization.help, utilization.kind, h.utilization, hardware(d), utilization.attributes)
}

// usage adds memory in use.
func (r *otelResource) usage(d *device, used float64) {
	row := otelRowOf(FieldMemoryUsed)
	r.add(row.name, row.unit, row.help, row.kind, used, hardware(d))
}

// otelRowOf is the row of a field that must be in the table.
func otelRowOf(f Field) *otelRow {
	return &otelTable[slices.IndexFunc(otelTable, func(r otelRow) bool { return r.field == f })]
}

// share adds the memory in use as a ratio.
func (r *otelResource) share(d *device, used float64) {
	r.add("hw.gpu.memory.utilization", "1", "Memory in use as a ratio of the memory of the device.", otelGauge, used/d.value(FieldMemoryTotal), hardware(d))
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
func hardware(d *device) []attribute.KeyValue {
	i := &d.gpu.Identity
	key := d.key()
	if d.mig != nil {
		return attributes("hw.id", string(key.mig), "hw.parent", string(key.gpu), "hw.name", d.mig.Profile, "hw.vendor", "NVIDIA",
			"hw.model", i.Name, "hw.driver_version", i.DriverVersion)
	}
	return attributes("hw.id", string(key.gpu), "hw.name", i.Name, "hw.vendor", "NVIDIA", "hw.model", i.Name, "hw.serial_number", i.Serial,
		"hw.driver_version", i.DriverVersion, "hw.firmware_version", i.VBIOS)
}
