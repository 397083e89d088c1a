package metrics

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// OTelSums derives the sums of resources from counters of devices, which NVML counts since the driver was loaded. The growth of a counter
// between two rounds belongs to the resource that has the device in both. The zero value is ready. It is not safe for concurrent use.
type OTelSums struct {
	// began is the time of the first round.
	began time.Time
	// counters are the last values of the devices' counters, sums the totals of resources since they began, by resource.
	counters map[otelSum]otelCount
	sums     map[attribute.Set]map[otelSum]float64
}

// otelSum identifies a sum of a resource: the name of the metric, and the attributes of the point. Sets of attributes are keys here, and not
// their attribute.Distinct: it is a hash, and users choose labels of pods.
type otelSum struct {
	name  string
	point attribute.Set
}

// otelCount is the value of a counter, and its resource.
type otelCount struct {
	of    attribute.Set
	value float64
}

// OTel are the metrics of a round for OpenTelemetry. The sums of a container begin when its claims were prepared. The sums of the node, and
// of claims that were prepared before the first round, begin with the first round. A counter is 0 in the first round in which its resource
// has the device.
func (s *OTelSums) OTel(j *Joined, now time.Time) []*metricdata.ResourceMetrics {
	if s.began.IsZero() {
		s.began, s.counters = now, map[otelSum]otelCount{}
	}
	all := j.OTel(now)
	before := s.sums
	s.sums = map[attribute.Set]map[otelSum]float64{}
	for _, a := range j.allocations {
		for i := range a.Containers { // a device that does not respond for some rounds stays allocated
			s.keep(before, *resource.NewSchemaless(attributes(j.container(&a.Containers[i])...)...).Set())
		}
	}
	for _, r := range all {
		of := *r.Resource.Set()
		s.keep(before, of)
		for _, m := range r.ScopeMetrics[0].Metrics {
			data, _ := m.Data.(metricdata.Sum[float64])
			for p := range data.DataPoints {
				point := &data.DataPoints[p]
				if point.StartTime.IsZero() {
					point.StartTime = s.began
				}
				if data.IsMonotonic {
					point.Value = s.sum(of, otelSum{m.Name, point.Attributes}, point.Value)
				}
			}
		}
	}
	return all
}

// keep keeps the sums of a resource that still exists.
func (s *OTelSums) keep(before map[attribute.Set]map[otelSum]float64, of attribute.Set) {
	if s.sums[of] != nil {
		return
	}
	if s.sums[of] = before[of]; s.sums[of] == nil {
		s.sums[of] = map[otelSum]float64{}
	}
}

// sum updates and returns the sum of a resource after a device's counter reached a value.
func (s *OTelSums) sum(of attribute.Set, counter otelSum, value float64) float64 {
	sum, begun := s.sums[of][counter]
	if last := s.counters[counter]; begun && last.of == of {
		if value < last.value {
			last.value = 0 // the driver was reloaded
		}
		sum += value - last.value
	}
	s.sums[of][counter] = sum
	s.counters[counter] = otelCount{of, value}
	return sum
}
