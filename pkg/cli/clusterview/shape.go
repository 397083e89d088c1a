package clusterview

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shape is the content of ResourceSlices that differ only in names: of the node, the pool and the GPUs.
type shape struct {
	id  int
	key string
	// users is the number of ResourceSlices in the Store with this content.
	users int
	// spec is a ResourceSlice of this content, with its own names, which belong at places.
	spec   resourceapi.ResourceSliceSpec
	places []place
	// classes are the classes of the names, by their numbers.
	classes []class
	// attributes are the attributes with a name as their value, by its number, qualified.
	attributes [][]resourceapi.QualifiedName
	// node, pool and generation are the numbers of names; node is -1 if the ResourceSlice is not of one node.
	node, pool, generation int
	// bound is set if a device has binding conditions.
	bound bool
	gpus  []gpuFacts
}

// piece is a ResourceSlice: its content, and its own names.
type piece struct {
	name  string
	shape *shape
	// values are the names, each after its length.
	values string
}

// shapes are the distinct contents of ResourceSlices.
type shapes struct {
	byKey map[string]*shape
	last  int
	reducer
}

// add returns a ResourceSlice, reduced. spec is its specification in protobuf, which is decoded only if its content is new.
func (s *shapes) add(name string, spec []byte) (*piece, error) {
	if err := s.reduce(spec, false); err != nil {
		return nil, err
	}
	found := s.byKey[string(s.key)]
	if found == nil {
		created, err := s.create(spec)
		if err != nil {
			return nil, err
		}
		s.byKey[created.key], found = created, created
	}
	found.users++
	return &piece{name, found, pack(s.tokens)}, nil
}

// release removes a ResourceSlice.
func (s *shapes) release(p *piece) {
	if p == nil {
		return
	}
	if p.shape.users--; p.shape.users == 0 {
		delete(s.byKey, p.shape.key)
	}
}

// create decodes a ResourceSlice.
func (s *shapes) create(data []byte) (*shape, error) {
	created := &shape{node: -1, pool: -1, generation: -1}
	if err := created.spec.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("reading a ResourceSlice: %w", err)
	}
	if err := s.reduce(data, true); err != nil {
		return nil, err
	}
	s.last++
	created.id, created.key, created.places = s.last, string(s.key), slices.Clone(s.places)
	created.attributes = make([][]resourceapi.QualifiedName, len(s.tokens))
	for _, t := range s.tokens {
		created.classes = append(created.classes, t.class)
	}
	for _, at := range created.places {
		switch at.kind {
		case placeNode:
			created.node = at.token
		case placePool:
			created.pool = at.token
		case placeGeneration:
			created.generation = at.token
		case placeAttribute:
			name := qualified(created.spec.Driver, at.attribute)
			if names := created.attributes[at.token]; !slices.Contains(names, name) {
				created.attributes[at.token] = append(names, name)
			}
		default: // devices and counters refer to their GPU by its name
		}
	}
	if created.pool < 0 || created.generation < 0 {
		return nil, errors.New("reading a ResourceSlice: it has no pool")
	}
	created.describe(s.tokens)
	created.bound = slices.ContainsFunc(created.spec.Devices, func(d resourceapi.Device) bool { return d.BindingConditions != nil })
	return created, nil
}

// qualified adds the driver's domain to the name of an attribute without domain.
func qualified(driver, attribute string) resourceapi.QualifiedName {
	if withoutDomain(attribute) == attribute {
		return resourceapi.QualifiedName(driver + "/" + attribute)
	}
	return resourceapi.QualifiedName(attribute)
}

// pack joins names.
func pack(tokens []token) string {
	var all []byte
	for _, t := range tokens {
		all = append(binary.AppendUvarint(all, uint64(len(t.value))), t.value...)
	}
	return string(all)
}

// names returns the names, by their numbers.
func (p *piece) names() []string {
	all := make([]string, 0, len(p.shape.classes))
	for rest := p.values; rest != ""; {
		length, n := uvarint(rest)
		all = append(all, rest[n:n+int(length)])
		rest = rest[n+int(length):]
	}
	return all
}

// uvarint decodes a number at the begin of a text, and returns the length of its encoding.
func uvarint(text string) (value int64, n int) {
	for shift := 0; n < len(text); shift += 7 {
		value |= int64(text[n]&0x7f) << shift
		n++
		if text[n-1] < 0x80 {
			break
		}
	}
	return value, n
}

// number decodes a name that is a number.
func number(name string) int64 {
	value, _ := uvarint(name)
	return value
}

// object returns the ResourceSlice as it was read, without metadata other than its name.
func (p *piece) object() *resourceapi.ResourceSlice {
	made := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: p.shape.spec}
	made.Spec.Devices = slices.Clone(made.Spec.Devices)
	made.Spec.SharedCounters = slices.Clone(made.Spec.SharedCounters)
	names := p.names()
	copied := copies{-1, -1, -1}
	for i := range p.shape.places {
		copied.set(&made.Spec, &p.shape.places[i], names)
	}
	return made
}

// copies are the last devices whose attributes, counters and taints were copied from the shape.
type copies struct{ attributes, consumed, taints int }

// set writes a name to its place.
func (c *copies) set(spec *resourceapi.ResourceSliceSpec, at *place, names []string) {
	name := &names[at.token]
	switch at.kind {
	case placeNode:
		spec.NodeName = name
	case placePool:
		spec.Pool.Name = *name
	case placeGeneration:
		spec.Pool.Generation = number(*name)
	case placeCounterSet:
		set := &spec.SharedCounters[at.item]
		set.Name = *name + set.Name[nameLength(set.Name):]
	default:
		c.setDevice(&spec.Devices[at.device], at, name)
	}
}

// setDevice writes a name of a device to its place.
func (c *copies) setDevice(d *resourceapi.Device, at *place, name *string) {
	switch at.kind {
	case placeDevice:
		d.Name = *name + d.Name[nameLength(d.Name):]
	case placeDeviceNode:
		d.NodeName = name
	case placeAttribute:
		if c.attributes != at.device {
			c.attributes, d.Attributes = at.device, maps.Clone(d.Attributes)
		}
		key := resourceapi.QualifiedName(at.attribute)
		value := d.Attributes[key]
		if value.StringValue != nil {
			value.StringValue = name
		} else if value.IntValue != nil {
			value.IntValue = new(number(*name))
		}
		d.Attributes[key] = value
	case placeConsumed:
		if c.consumed != at.device {
			c.consumed, d.ConsumesCounters = at.device, slices.Clone(d.ConsumesCounters)
		}
		set := &d.ConsumesCounters[at.item].CounterSet
		*set = *name + (*set)[nameLength(*set):]
	default: // placeTaint
		if c.taints != at.device {
			c.taints, d.Taints = at.device, slices.Clone(d.Taints)
		}
		d.Taints[at.item].TimeAdded = added(*name)
	}
}

// added decodes the time of a taint.
func added(name string) *metav1.Time {
	var t metav1.Time
	if t.Unmarshal([]byte(name)) != nil {
		return nil // reducer.taint refuses other bytes
	}
	return &t
}
