package model

// ValueType is NVML's type of a value.
type ValueType uint32

// The types that values have.
const (
	TypeU32 ValueType = 1
	TypeU64 ValueType = 3
	TypeI32 ValueType = 5
)

// FieldValue is the value of a field.
type FieldValue struct {
	Type  ValueType
	Value uint64
}

// AllLinks in the scope of a field is the sum over all NVLinks.
const AllLinks = 0xffffffff

// field is a field of NVML: the first driver branch that has it, the GPUs that support it, and its value.
type field struct {
	since int
	has   func(Reading) bool
	kind  ValueType
	value func(r Reading, scope uint32) (uint64, error)
}

// Driver branches whose libraries know more fields.
const (
	firstBranch    = 450
	linkECCBranch  = 470
	hopperBranch   = 525
	powerBranch    = 535
	pcieBytes      = 550
	link5Branch    = 565
	recoveryBranch = 565
	reasonBranch   = 575
	stallBranch    = 580
	inactiveRows   = 590
)

func everyGPU(Reading) bool { return true }

func noGPU(Reading) bool { return false }

func from(a Architecture) func(Reading) bool {
	return func(r Reading) bool { return r.Board.Compute.Architecture >= a }
}

func links(first, last Architecture) func(Reading) bool {
	return func(r Reading) bool {
		a := r.Board.Compute.Architecture
		return r.Board.Sensors().Links > 0 && a >= first && a <= last
	}
}

func retires(r Reading) bool { return r.Board.RetiresPages() }

// averagesPower reports whether the GPU reports an average power: GA100 does not.
func averagesPower(r Reading) bool {
	ga100 := r.Board.Compute.Major == 8 && r.Board.Compute.Minor == 0
	return r.Board.Compute.Architecture >= Ampere && !ga100
}

func constant(v uint64) func(Reading, uint32) (uint64, error) {
	return func(Reading, uint32) (uint64, error) { return v, nil }
}

func plain(f func(Reading) uint64) func(Reading, uint32) (uint64, error) {
	return func(r Reading, _ uint32) (uint64, error) { return f(r), nil }
}

func events(q Quantity) func(Reading, uint32) (uint64, error) {
	return plain(func(r Reading) uint64 { return uint64(r.Sums[q]) })
}

func lifetime(q Quantity) func(Reading, uint32) (uint64, error) {
	return plain(func(r Reading) uint64 { return uint64(r.Lifetime[q]) })
}

func limited(q Quantity) func(Reading, uint32) (uint64, error) {
	return plain(func(r Reading) uint64 { return r.Nanoseconds(q) })
}

// ofLink returns one link's part of a total. The first link also gets the rest of the division.
func ofLink(all uint64, link, count int) uint64 {
	part := all / uint64(count)
	if link == 0 {
		part += all % uint64(count)
	}
	return part
}

// scoped returns a total over links, or the part of the link in the scope; InvalidArgument for a link that does not exist on the board.
func scoped(sum func(Reading) uint64) func(Reading, uint32) (uint64, error) {
	return func(r Reading, scope uint32) (uint64, error) {
		count := r.Board.Sensors().Links
		switch {
		case scope == AllLinks:
			return sum(r), nil
		case int64(scope) >= int64(count):
			return 0, InvalidArgument
		}
		return ofLink(sum(r), int(scope), count), nil
	}
}

func linkEvents(q Quantity) func(Reading, uint32) (uint64, error) {
	return scoped(func(r Reading) uint64 { return uint64(r.Sums[q]) })
}

func kibibytes(q Quantity) func(Reading, uint32) (uint64, error) {
	return scoped(func(r Reading) uint64 { return r.Bytes(q) / 1024 })
}

// lane returns the part of a link for a total with separate fields for each link.
func lane(q Quantity, number int) func(Reading, uint32) (uint64, error) {
	return func(r Reading, _ uint32) (uint64, error) {
		count := r.Board.Sensors().Links
		if number >= count {
			return 0, NotSupported
		}
		return ofLink(uint64(r.Sums[q]), number, count), nil
	}
}

// Field reads a field. It fails with InvalidArgument if the driver does not know the field, and with NotSupported if the GPU does not
// support it.
func (r Reading) Field(id, scope uint32) (FieldValue, error) {
	f, known := fields[id]
	switch {
	case !known || r.Branch < f.since:
		return FieldValue{}, InvalidArgument
	case !f.has(r):
		return FieldValue{}, NotSupported
	}
	value, err := f.value(r, scope)
	return FieldValue{Type: f.kind, Value: value}, err
}
