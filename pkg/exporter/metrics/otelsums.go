package metrics

import (
	"strings"
	"time"
)

// OTelSums derives the sums of resources from counters of devices, which NVML counts since the driver was loaded. The growth of a counter
// between two rounds belongs to the resource that has the device in both. The zero value is ready. It is not safe for concurrent use.
type OTelSums struct {
	// began is the time of the first round.
	began time.Time
	// counters are the last values of the devices' counters, sums the totals of resources since they began, keyed by the text of the resource.
	counters map[string]otelCounter
	sums     map[string]map[string]float64
}

// otelCounter is the value of a counter, and its resource.
type otelCounter struct {
	of    string
	value float64
}

// OTel are the metrics of a round for OpenTelemetry. The sums of a container begin when its claims were prepared. The sums of the node, and
// of claims that were prepared before the first round, begin with the first round. A counter is 0 in the first round in which its resource
// has the device.
func (s *OTelSums) OTel(j *Joined, now time.Time) []OTelResource {
	if s.began.IsZero() {
		s.began, s.counters = now, map[string]otelCounter{}
	}
	all := j.OTel()
	before := s.sums
	s.sums = map[string]map[string]float64{}
	for _, a := range j.allocations {
		for i := range a.Containers { // a device that does not respond for some rounds stays allocated
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

// keep keeps the sums of a resource that still exists.
func (s *OTelSums) keep(before map[string]map[string]float64, of string) {
	if s.sums[of] != nil {
		return
	}
	if s.sums[of] = before[of]; s.sums[of] == nil {
		s.sums[of] = map[string]float64{}
	}
}

// sum updates and returns the sum of a resource after a device's counter reached a value.
func (s *OTelSums) sum(of, counter string, value float64) float64 {
	sum, begun := s.sums[of][counter]
	if last := s.counters[counter]; begun && last.of == of {
		if value < last.value {
			last.value = 0 // the driver was reloaded
		}
		sum += value - last.value
	}
	s.sums[of][counter] = sum
	s.counters[counter] = otelCounter{of, value}
	return sum
}

// textOf is a unique text for attributes.
func textOf(all []OTelAttribute) string {
	var text strings.Builder
	for _, a := range all {
		text.WriteString("\x00" + a.Key + "\x00" + a.Value)
	}
	return text.String()
}
