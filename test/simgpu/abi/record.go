package abi

import "encoding/binary"

// record builds a C struct. Callers add fields in C order, padding included.
type record []byte

func (r record) u32(values ...uint32) record {
	for _, v := range values {
		r = binary.LittleEndian.AppendUint32(r, v)
	}
	return r
}

func (r record) u64(values ...uint64) record {
	for _, v := range values {
		r = binary.LittleEndian.AppendUint64(r, v)
	}
	return r
}

// chars adds a char array of a fixed size; longer text is truncated.
func (r record) chars(s string, size int) record {
	field := make([]byte, size)
	copy(field[:size-1], s)
	return append(r, field...)
}

// structVersion is NVML_STRUCT_VERSION: size and version in one word.
func structVersion(size, version int) uint32 { return uint32(size | version<<24) }
