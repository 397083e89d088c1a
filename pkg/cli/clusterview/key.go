package clusterview

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Reads are the attributes that claims read of the attributes that only identify a GPU; see Identity. All names are qualified:
// "gpu.prism.dev/uuid".
type Reads struct {
	// All is set if an expression computes names of attributes.
	All bool
	// Values are attributes whose values expressions read.
	Values map[resourceapi.QualifiedName]bool
	// Equal are attributes that constraints compare: only which devices have equal values matters.
	Equal map[resourceapi.QualifiedName]bool
}

// Identity reports whether an attribute only says which GPU a device is. Its domain does not matter.
func Identity(attribute resourceapi.QualifiedName) bool {
	_, found := identities[withoutDomain(string(attribute))]
	return found
}

// Key is equal for pools that the allocator cannot distinguish, apart from names and from identities that are not read. It is compared only
// with keys of the same Store.
func (p *Pool) Key(reads Reads) string {
	k := keyWriter{reads: reads}
	k.pool(p)
	return string(k.key)
}

// Key is equal for nodes whose own pools the allocator cannot distinguish, apart from names and from identities that are not read. Where
// constraints also compare devices of shared pools, the attributes belong to Reads.Values.
func (n *Node) Key(reads Reads) string {
	// The names of pools order them; equal nodes have equal pools under other names.
	pools := slices.Clone(n.Pools)
	keys := map[*Pool]string{}
	for _, p := range pools {
		keys[p] = p.Key(reads)
	}
	slices.SortStableFunc(pools, func(a, b *Pool) int { return cmp.Compare(keys[a], keys[b]) })
	k := keyWriter{reads: reads}
	for _, p := range pools {
		k.pool(p)
	}
	return string(k.key)
}

// keyWriter writes keys of pools.
type keyWriter struct {
	reads Reads
	key   []byte
	// numbers are the numbers of values that only have to be equal.
	numbers [classes]map[string]int
}

// number adds a value by its number, in the order of appearance.
func (k *keyWriter) number(of class, value string) int {
	n, found := k.numbers[of][value]
	if !found {
		if k.numbers[of] == nil {
			k.numbers[of] = map[string]int{}
		}
		n = len(k.numbers[of])
		k.numbers[of][value] = n
	}
	return n
}

func (k *keyWriter) int(n int) { k.key = binary.AppendVarint(k.key, int64(n)) }

func (k *keyWriter) text(text string) {
	k.int(len(text))
	k.key = append(k.key, text...)
}

// pool adds a pool. Names of GPUs have numbers of their own in each pool: nothing refers to the names of another pool.
func (k *keyWriter) pool(p *Pool) {
	k.numbers[className] = nil
	k.int(len(p.pieces))
	for _, piece := range p.pieces {
		k.int(piece.shape.id)
		for i, name := range piece.names() {
			if piece.shape.classes[i] == className {
				k.int(k.number(className, name))
				continue
			}
			k.value(piece.shape, i, name)
		}
	}
	k.uses(p)
	k.rules(p)
}

// value adds a value of an identifying attribute as far as it is read.
func (k *keyWriter) value(of *shape, i int, value string) {
	if len(of.attributes[i]) == 0 {
		return
	}
	read := func(names map[resourceapi.QualifiedName]bool) bool {
		return slices.ContainsFunc(of.attributes[i], func(name resourceapi.QualifiedName) bool { return names[name] })
	}
	if k.reads.All || read(k.reads.Values) {
		k.text(value)
	} else if read(k.reads.Equal) {
		k.int(k.number(of.classes[i], value))
	}
}

// device returns a device's name with the number of its GPU.
func (k *keyWriter) device(name string) string {
	n := nameLength(name)
	number, found := k.numbers[className][name[:n]]
	if n == 0 || !found {
		return name
	}
	return "#" + strconv.Itoa(number) + name[n:]
}

// uses adds which devices are allocated, and for shared devices the consumed capacity.
func (k *keyWriter) uses(p *Pool) {
	var all []string
	for first := 0; first < len(p.Uses); {
		last := first
		for last < len(p.Uses) && p.Uses[last].Result.Device == p.Uses[first].Result.Device {
			last++
		}
		all = append(all, k.device(p.Uses[first].Result.Device)+" "+held(p.Uses[first:last]))
		first = last
	}
	slices.Sort(all)
	k.int(len(all))
	for _, use := range all {
		k.text(use)
	}
}

// held describes how much of a device claims hold.
func held(uses []Use) string {
	var text strings.Builder
	consumed := map[resourceapi.QualifiedName]*resource.Quantity{}
	shared := false
	for _, use := range uses {
		if use.Result.ShareID == nil {
			return "all"
		}
		shared = true
		for name, amount := range use.Result.ConsumedCapacity {
			if consumed[name] == nil {
				consumed[name] = &resource.Quantity{}
			}
			consumed[name].Add(amount)
		}
	}
	if shared {
		text.WriteString("shared")
	}
	for _, name := range slices.Sorted(maps.Keys(consumed)) {
		text.WriteString(" " + string(name) + "=" + consumed[name].String())
	}
	return text.String()
}

// rules adds the taints by rules, after their number: another pool may follow.
func (k *keyWriter) rules(p *Pool) {
	k.int(len(p.rules))
	for _, rule := range p.rules {
		device := "*"
		if only := rule.Spec.DeviceSelector.Device; only != nil {
			device = k.device(*only)
		}
		k.text(device)
		k.text(rule.Spec.Taint.Key)
		k.text(rule.Spec.Taint.Value)
		k.text(string(rule.Spec.Taint.Effect))
	}
}
