package metrics

import (
	"strings"
	"time"
)

// OTelSums makes sums of resources of the counters of devices, which NVML counts since the driver was loaded. What a counter
// grows by between two rounds is that resource's that has the device in both. The zero value is ready. It is not safe for concurrent use.
type OTelSums struct {
	// began is the time of the first round.
	began time.Time
	// counters are those of devices as they were found last, sums those of resources since they began, by the text of the resource.
	counters map[string]otelCounter
	sums     map[string]map[string]float64
}

// otelCounter is the value of a counter, and which resource had it.
type otelCounter struct {
	of    string
	value float64
}

// OTel are the metrics of a round for OpenTelemetry. Sums begin when the claims of their container were prepared, those of the node and of
// claims that were prepared before the first round with that round. A counter is 0 in the first round in which its resource has the device.
func (s *OTelSums) OTel(j *Joined, now time.Time) []OTelResource {
	if s.began.IsZero() {
		s.began, s.counters = now, map[string]otelCounter{}
	}
	all := j.OTel()
	before := s.sums
	s.sums = map[string]map[string]float64{}
	for _, a := range j.allocations {
		for i := range a.Containers { // a device that does not answer for some rounds is still theirs
			s.keep(before, textOf(attributes(j.container(&a.Containers[i])...)))
		}
	}
	for i := range all {
		of := textOf(all[i].Attributes)
		s.keep(before, of)
		for m := range all[i].Metrics {
			metric := &all[i].Metrics[m]
			for p := range metric.Points {
				point := &metric.Points[p]
				if metric.Kind != OTelGauge && point.Start.IsZero() {
					point.Start = s.began
				}
				if metric.Kind == OTelCounter {
					point.Value = s.sum(of, metric.Name+textOf(point.Attributes), point.Value)
				}
			}
		}
	}
	return all
}

// keep keeps the sums of a resource that is still there.
func (s *OTelSums) keep(before map[string]map[string]float64, of string) {
	if s.sums[of] != nil {
		return
	}
	if s.sums[of] = before[of]; s.sums[of] == nil {
		s.sums[of] = map[string]float64{}
	}
}

// sum is that of a resource, after a counter of a device has reached a value.
func (s *OTelSums) sum(of, counter string, value float64) float64 {
	sum, begun := s.sums[of][counter]
	if last := s.counters[counter]; begun && last.of == of {
		if value < last.value {
			last.value = 0 // the driver was loaded again
		}
		sum += value - last.value
	}
	s.sums[of][counter] = sum
	s.counters[counter] = otelCounter{of, value}
	return sum
}

// textOf is a text that no other attributes have.
func textOf(all []OTelAttribute) string {
	var text strings.Builder
	for _, a := range all {
		text.WriteString("\x00" + a.Key + "\x00" + a.Value)
	}
	return text.String()
}
