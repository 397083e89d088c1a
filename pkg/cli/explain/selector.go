package explain

import (
	"context"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// matcher evaluates expressions on devices, once for devices that are equal in everything that an expression reads.
type matcher struct {
	cel         *cel.Cache
	expressions map[string]*expression
	results     map[string]map[string]result
}

// result is the value of an expression on a device.
type result struct {
	matches bool
	err     error
}

func newMatcher(cache *cel.Cache) *matcher {
	return &matcher{cel: cache, expressions: map[string]*expression{}, results: map[string]map[string]result{}}
}

// expressionsOf parses selectors.
func (m *matcher) expressionsOf(selectors []resourceapi.DeviceSelector, of string) (all []*expression) {
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		key := of + "\x00" + s.CEL.Expression
		if m.expressions[key] == nil {
			m.expressions[key] = m.parse(s.CEL.Expression, of)
		}
		all = append(all, m.expressions[key])
	}
	return all
}

// device is a device with the name of its driver.
type device struct {
	*resourceapi.Device
	driver string
}

// evaluate returns the value of an expression or a part on a device.
func (m *matcher) evaluate(ctx context.Context, p *part, d device) (bool, error) {
	if p.reads.all {
		return m.run(ctx, p.text, d)
	}
	known := m.results[p.text]
	if known == nil {
		known = map[string]result{}
		m.results[p.text] = known
	}
	key := p.reads.key(d)
	r, found := known[key]
	if !found {
		if r.matches, r.err = m.run(ctx, p.text, d); ctx.Err() != nil {
			return r.matches, r.err
		}
		known[key] = r
	}
	return r.matches, r.err
}

func (m *matcher) run(ctx context.Context, text string, d device) (bool, error) {
	compiled := m.cel.GetOrCompile(text)
	if compiled.Error != nil {
		return false, compiled.Error
	}
	matches, _, err := compiled.DeviceMatches(ctx, cel.Device{
		Driver: d.driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	if err != nil {
		err = cel.EnhanceRuntimeError(err)
	}
	return matches, err
}

// key is equal for devices with equal values of everything that is read.
func (r *reads) key(d device) string {
	var b strings.Builder
	b.WriteString(d.driver)
	if shared(d.Device) {
		b.WriteByte('+')
	}
	for _, name := range r.sortedAttributes() {
		b.WriteByte(0)
		if a, found := attribute(d, name); found {
			b.WriteByte(attributeType(a))
			b.WriteString(attributeText(a))
		}
	}
	for _, name := range r.sortedCapacities() {
		b.WriteByte(0)
		if c, found := capacityOf(d, name); found {
			b.WriteByte('=')
			b.WriteString(c.Value.String())
		}
	}
	return b.String()
}

// matchesAll reports whether all expressions match, in their order.
func (m *matcher) matchesAll(ctx context.Context, expressions []*expression, d device) (bool, error) {
	for _, e := range expressions {
		if matches, err := m.evaluate(ctx, &e.part, d); err != nil || !matches {
			return false, err
		}
	}
	return true, nil
}

// exclusion is the first part that excludes all devices that were left.
type exclusion struct {
	// step counts the parts before it.
	step int
	part *part
	// left are the devices that it excludes.
	left []device
}

// excluded finds the part that excludes the last of the devices, none of which all expressions match.
func (m *matcher) excluded(ctx context.Context, expressions []*expression, devices []device) exclusion {
	x := exclusion{left: devices}
	for _, e := range expressions {
		for i := range e.parts {
			x.part = &e.parts[i]
			left := slices.DeleteFunc(slices.Clone(x.left), func(d device) bool {
				matches, err := m.evaluate(ctx, x.part, d)
				// A later part may make the whole expression false in spite of an error.
				return err == nil && !matches
			})
			if len(left) == 0 {
				return x
			}
			x.left, x.step = left, x.step+1
		}
	}
	return x
}

// attribute returns an attribute by its name with domain.
func attribute(d device, name resourceapi.QualifiedName) (resourceapi.DeviceAttribute, bool) {
	if a, found := d.Attributes[name]; found {
		return a, true
	}
	domain, id, _ := strings.Cut(string(name), "/")
	if domain != d.driver {
		return resourceapi.DeviceAttribute{}, false
	}
	a, found := d.Attributes[resourceapi.QualifiedName(id)]
	return a, found
}

// capacityOf returns a capacity by its name with domain.
func capacityOf(d device, name resourceapi.QualifiedName) (resourceapi.DeviceCapacity, bool) {
	if c, found := d.Capacity[name]; found {
		return c, true
	}
	domain, id, _ := strings.Cut(string(name), "/")
	if domain != d.driver {
		return resourceapi.DeviceCapacity{}, false
	}
	c, found := d.Capacity[resourceapi.QualifiedName(id)]
	return c, found
}

// attributeType is a letter for the type of the value.
func attributeType(a resourceapi.DeviceAttribute) byte {
	switch {
	case a.StringValue != nil:
		return 's'
	case a.VersionValue != nil:
		return 'v'
	case a.IntValue != nil:
		return 'i'
	case a.BoolValue != nil:
		return 'b'
	case a.StringValues != nil:
		return 'S'
	case a.VersionValues != nil:
		return 'V'
	case a.IntValues != nil:
		return 'I'
	default:
		return 'B'
	}
}

func attributeText(a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.VersionValue != nil:
		return *a.VersionValue
	case a.IntValue != nil:
		return strconv.FormatInt(*a.IntValue, 10)
	case a.BoolValue != nil:
		return strconv.FormatBool(*a.BoolValue)
	case a.StringValues != nil:
		return strings.Join(a.StringValues, ",")
	case a.VersionValues != nil:
		return strings.Join(a.VersionValues, ",")
	case a.IntValues != nil:
		texts := make([]string, len(a.IntValues))
		for i, n := range a.IntValues {
			texts[i] = strconv.FormatInt(n, 10)
		}
		return strings.Join(texts, ",")
	default:
		texts := make([]string, len(a.BoolValues))
		for i, b := range a.BoolValues {
			texts[i] = strconv.FormatBool(b)
		}
		return strings.Join(texts, ",")
	}
}

func shared(d *resourceapi.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}
