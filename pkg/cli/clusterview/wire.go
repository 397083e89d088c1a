package clusterview

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tags of the fields in k8s.io/api/resource/v1 that contain names of a GPU, or lead to them: the number of the field, and its encoding.
const (
	varint, bytes = 0, 2

	sliceMetadata   = 1<<3 | bytes
	sliceSpec       = 2<<3 | bytes
	metadataName    = 1<<3 | bytes
	specPool        = 2<<3 | bytes
	specNodeName    = 3<<3 | bytes
	specDevices     = 6<<3 | bytes
	specCounterSets = 8<<3 | bytes
	poolName        = 1<<3 | bytes
	poolGeneration  = 2<<3 | varint
	counterSetName  = 1<<3 | bytes

	deviceName       = 1<<3 | bytes
	deviceAttributes = 2<<3 | bytes
	deviceConsumes   = 4<<3 | bytes
	deviceNode       = 5<<3 | bytes
	deviceTaints     = 8<<3 | bytes
	consumedSet      = 1<<3 | bytes
	attributeInt     = 2<<3 | varint
	attributeString  = 4<<3 | bytes
	taintAdded       = 4<<3 | bytes
	entryKey         = 1<<3 | bytes
	entryValue       = 2<<3 | bytes
)

// errCut says that bytes are not a protobuf message.
var errCut = errors.New("invalid protobuf")

// field is a field of a message: raw with its tag, value without tag and length.
type field struct {
	tag        uint64
	raw, value []byte
}

// next returns the first field of a message, and the rest of the message.
func next(message []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return field{}, nil, errCut
	}
	m := protowire.ConsumeFieldValue(number, kind, message[n:])
	if m < 0 {
		return field{}, nil, errCut
	}
	f = field{protowire.EncodeTag(number, kind), message[:n+m], message[n : n+m]}
	if kind == protowire.BytesType {
		f.value, _ = protowire.ConsumeBytes(f.value)
	}
	return f, message[n+m:], nil
}

// find returns the value of a field of a message; nil without it.
func find(message []byte, tag uint64) ([]byte, error) {
	var found []byte
	for len(message) > 0 {
		f, rest, err := next(message)
		if err != nil {
			return nil, err
		}
		if f.tag == tag {
			found = f.value
		}
		message = rest
	}
	return found, nil
}

// class is a group of names. Only names of one class are compared with each other.
type class uint8

const (
	className class = iota
	classNode
	classPool
	classGeneration
	classTime
	classUUID
	classIndex
	classMinor
	classBus
	classRoot
	classNUMA
	classes
)

// identities are the attributes that only say which GPU a device is, without domain.
var identities = map[string]class{
	"uuid": classUUID, "parentUUID": classUUID, "index": classIndex, "parentIndex": classIndex, "minor": classMinor, "parentMinor": classMinor,
	"pciBusID": classBus, "pcieRoot": classRoot, "numaNode": classNUMA,
}

// place is the field of a ResourceSlice to which a name belongs.
type place struct {
	kind placeKind
	// device and item are indexes: of the device, and of its counter set or taint, or of the shared counter set.
	device, item int
	attribute    string
	token        int
}

type placeKind uint8

const (
	placeNode placeKind = iota
	placePool
	placeGeneration
	placeCounterSet
	placeDevice
	placeDeviceNode
	placeAttribute
	placeConsumed
	placeTaint
)

// token is a name, or another value that only identifies.
type token struct {
	class class
	value []byte
}

// reducer separates the content of a ResourceSlice from its names. It works on protobuf, because most ResourceSlices have a content that is
// known already, and need not be decoded.
type reducer struct {
	// key is the content with a number for each name: equal names of a class have equal numbers. It is unambiguous: each message ends with a 0,
	// which begins no field.
	key     []byte
	tokens  []token
	byClass [classes][]int
	// places are collected if record is set.
	places []place
	record bool

	device, item int
}

// reset drops the last ResourceSlice.
func (r *reducer) reset(record bool) {
	r.key, r.tokens, r.places, r.record, r.device, r.item = r.key[:0], r.tokens[:0], r.places[:0], record, 0, 0
	for i := range r.byClass {
		r.byClass[i] = r.byClass[i][:0]
	}
}

// token returns the number of a name.
func (r *reducer) token(of class, value []byte) int {
	for _, i := range r.byClass[of] {
		if string(r.tokens[i].value) == string(value) {
			return i
		}
	}
	r.tokens = append(r.tokens, token{of, value})
	r.byClass[of] = append(r.byClass[of], len(r.tokens)-1)
	return len(r.tokens) - 1
}

// number adds a name to the key.
func (r *reducer) number(of class, value []byte, at place) {
	at.token = r.token(of, value)
	r.key = binary.AppendVarint(r.key, int64(at.token))
	if r.record {
		r.places = append(r.places, at)
	}
}

// tag adds the tag of a field to the key, whose value follows.
func (r *reducer) tag(tag uint64) { r.key = protowire.AppendVarint(r.key, tag) }

// end ends a message.
func (r *reducer) end() { r.key = append(r.key, 0) }

// name adds a text that begins with the name of a GPU, or another text.
func (r *reducer) name(text []byte, at place) {
	n := nameLength(text)
	if n == 0 {
		r.key = append(r.key, 0)
	} else {
		r.key = append(r.key, 1)
		r.number(className, text[:n], at)
	}
	r.key = protowire.AppendBytes(r.key, text[n:])
}

// nameLength is the length of the name of the GPU that begins the name of a device; 0 for a device of the whole node.
func nameLength[T string | []byte](device T) int {
	const prefix = len("gpu-")
	if len(device) <= prefix || string(device[:prefix]) != "gpu-" || device[prefix] == '-' {
		return 0
	}
	if n := strings.IndexByte(string(device[prefix:]), '-'); n > 0 {
		return prefix + n
	}
	return len(device)
}

// message adds the fields of a message; visit adds a field that contains names, and reports whether it added the field.
func (r *reducer) message(tag uint64, message []byte, visit func(field) (bool, error)) error {
	r.tag(tag)
	for len(message) > 0 {
		f, rest, err := next(message)
		if err != nil {
			return err
		}
		done, err := visit(f)
		if err != nil {
			return err
		}
		if !done {
			r.key = append(r.key, f.raw...)
		}
		message = rest
	}
	r.end()
	return nil
}

// reduce separates the content of ResourceSliceSpec from its names.
func (r *reducer) reduce(spec []byte, record bool) error {
	r.reset(record)
	sets := 0
	err := r.message(sliceSpec, spec, func(f field) (bool, error) {
		switch f.tag {
		case specPool:
			return true, r.pool(f.value)
		case specNodeName:
			r.tag(f.tag)
			r.number(classNode, f.value, place{kind: placeNode})
			return true, nil
		case specDevices:
			err := r.addDevice(f.value)
			r.device++
			return true, err
		case specCounterSets:
			err := r.named(specCounterSets, counterSetName, f.value, place{kind: placeCounterSet, item: sets})
			sets++
			return true, err
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("reading a ResourceSlice: %w", err)
	}
	return nil
}

func (r *reducer) pool(message []byte) error {
	return r.message(specPool, message, func(f field) (bool, error) {
		switch f.tag {
		case poolName:
			r.tag(f.tag)
			r.number(classPool, f.value, place{kind: placePool})
			return true, nil
		case poolGeneration:
			r.tag(f.tag)
			r.number(classGeneration, f.value, place{kind: placeGeneration})
			return true, nil
		}
		return false, nil
	})
}

// named adds a message one of whose fields is a name.
func (r *reducer) named(tag, name uint64, message []byte, at place) error {
	return r.message(tag, message, func(f field) (bool, error) {
		if f.tag != name {
			return false, nil
		}
		r.tag(f.tag)
		r.name(f.value, at)
		return true, nil
	})
}

func (r *reducer) addDevice(message []byte) error {
	consumed, taints := 0, 0
	return r.message(specDevices, message, func(f field) (bool, error) {
		switch f.tag {
		case deviceName:
			r.tag(f.tag)
			r.name(f.value, place{kind: placeDevice, device: r.device})
			return true, nil
		case deviceAttributes:
			return r.attribute(f.value)
		case deviceConsumes:
			err := r.named(deviceConsumes, consumedSet, f.value, place{kind: placeConsumed, device: r.device, item: consumed})
			consumed++
			return true, err
		case deviceNode:
			r.tag(f.tag)
			r.number(classNode, f.value, place{kind: placeDeviceNode, device: r.device})
			return true, nil
		case deviceTaints:
			err := r.taint(f.value, place{kind: placeTaint, device: r.device, item: taints})
			taints++
			return true, err
		}
		return false, nil
	})
}

// attribute adds an attribute that only identifies; it adds no other.
func (r *reducer) attribute(entry []byte) (bool, error) {
	name, err := find(entry, entryKey)
	if err != nil {
		return false, err
	}
	of, identifies := identities[string(withoutDomain(name))]
	if !identifies {
		return false, nil
	}
	value, err := find(entry, entryValue)
	if err != nil {
		return false, err
	}
	r.tag(deviceAttributes)
	r.key = protowire.AppendBytes(r.key, name)
	at := place{kind: placeAttribute, device: r.device}
	if r.record {
		at.attribute = string(name)
	}
	return true, r.message(entryValue, value, func(f field) (bool, error) {
		if f.tag != attributeInt && f.tag != attributeString {
			return false, nil
		}
		r.tag(f.tag)
		r.number(of, f.value, at)
		return true, nil
	})
}

// withoutDomain returns an attribute's name without its domain.
func withoutDomain[T string | []byte](name T) T {
	return name[strings.LastIndexByte(string(name), '/')+1:]
}

// taint adds a taint, whose time only the users read.
func (r *reducer) taint(message []byte, at place) error {
	return r.message(deviceTaints, message, func(f field) (bool, error) {
		if f.tag != taintAdded {
			return false, nil
		}
		if err := new(metav1.Time).Unmarshal(f.value); err != nil {
			return false, err
		}
		r.tag(f.tag)
		r.number(classTime, f.value, at)
		return true, nil
	})
}
