package metrics

import (
	"math"
	"time"
)

// page is a text under construction in one of Prometheus' formats. A family without series writes nothing.
type page struct {
	text        []byte
	openMetrics bool
	// family is the family of the next sample; begun is set after its header is written.
	family *Family
	begun  bool
}

// begin sets the family of the next samples.
func (p *page) begin(f *Family) { p.family, p.begun = f, false }

// header writes the lines before the first sample of a family.
func (p *page) header() {
	if p.begun {
		return
	}
	p.begun = true
	name := p.family.Name
	if p.openMetrics {
		name = p.family.base()
	}
	p.text = append(append(append(p.text, "# HELP "...), name...), ' ')
	p.text = append(appendHelp(p.text, p.family.Help, p.openMetrics), '\n')
	p.text = append(append(append(p.text, "# TYPE "...), name...), ' ')
	p.text = append(append(p.text, p.family.Kind.String()...), '\n')
	if p.openMetrics && p.family.Unit != "" {
		p.text = append(append(append(p.text, "# UNIT "...), name...), ' ')
		p.text = append(append(p.text, p.family.Unit...), '\n')
	}
}

// sample writes one series; its labels are both lists together. NaN writes nothing.
func (p *page) sample(value float64, of, more []byte) {
	if math.IsNaN(value) {
		return
	}
	p.header()
	p.text = append(p.text, p.family.Name...)
	if len(of)+len(more) > 0 {
		p.text = append(append(p.text, '{'), of...)
		if len(of) > 0 && len(more) > 0 {
			p.text = append(p.text, ',')
		}
		p.text = append(append(p.text, more...), '}')
	}
	p.text = append(appendValue(append(p.text, ' '), value), '\n')
}

// one writes the only series of a family.
func (p *page) one(f *Family, value float64) {
	p.begin(f)
	p.sample(value, nil, nil)
}

// seconds is a time as a timestamp, NaN for the zero time.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return math.NaN()
	}
	return float64(at.UnixMilli()) / 1000
}

// boolValue is 1 for true, otherwise 0.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
