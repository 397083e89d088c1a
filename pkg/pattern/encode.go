package pattern

import (
	"encoding/binary"
	"fmt"
	mathbits "math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// The file of encoded rules, little endian; offsets count from its beginning. pkg/profiler/native/match/match.h reads it.
//
//	header:  0 magic, 4 version, 8 checksum (8 bytes) of all that follows it, 16 size of the file, 20 target, 24 tables,
//	         28 1 when the first table includes and the others exclude, 0 when all exclude, 32 offset and 36 number of names;
//	         each 4 bytes unless it says otherwise
//	         40 offset of each table
//	table:   states, classes, ranges, start; offsets of transitions, flags, ends and classes of ranges: 4 bytes each
//	         class of each of the 128 ASCII characters: 2 bytes each
//	         transitions: state*classes+class, 2 bytes each; flags: a byte per state, 1 accepts, 2 is final;
//	         ends: the last character of each range of others, 4 bytes each; classes of these ranges: 2 bytes each
//	names:   a byte with the length, then the name, one after the other
//
// Every part begins at a multiple of 4, and the size is one of 8.
const (
	magic   = 0x4d535250 // "PRSM"
	version = 1

	headerBytes      = 40
	checksumAt       = 8
	checkedFrom      = 16
	tableHeaderBytes = 32 + 2*utf8.RuneSelf

	flagAccept = 1
	flagFinal  = 2
)

// Encode returns the file that the injection library reads. Equal rules return equal bytes.
func (r Rules) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("encoding rules: %w", err)
	}
	b := r.encode()
	if len(b) > MaxRules {
		return nil, fmt.Errorf("encoding rules: they take %d bytes; at most %d are possible: write fewer or shorter patterns", len(b), MaxRules)
	}
	return b, nil
}

func (r Rules) encode() []byte {
	tables := r.tables()
	b := make([]byte, headerBytes+4*len(tables))
	u32(b, 0, magic)
	u32(b, 4, version)
	u32(b, 20, int(r.Target))
	u32(b, 24, len(tables))
	if r.Include != nil {
		u32(b, 28, 1)
	}
	for i, t := range tables {
		u32(b, headerBytes+4*i, len(b))
		b = t.encode(b)
	}
	u32(b, 32, len(b))
	u32(b, 36, len(r.Names))
	for _, name := range r.Names {
		b = append(append(b, byte(len(name))), name...)
	}
	b = align(b, 8)
	u32(b, 16, len(b))
	binary.LittleEndian.PutUint64(b[checksumAt:], checksum(b[checkedFrom:]))
	return b
}

func (r Rules) tables() []*Table {
	if r.Include == nil {
		return r.Excludes
	}
	return slices.Insert(slices.Clone(r.Excludes), 0, r.Include)
}

func (r Rules) check() error {
	switch {
	case r.Target >= targets:
		return fmt.Errorf("unknown target %d", r.Target)
	case len(r.Excludes) > MaxExcludes:
		return fmt.Errorf("%d patterns exclude; at most %d are possible", len(r.Excludes), MaxExcludes)
	case len(r.Names) > MaxNames:
		return fmt.Errorf("%d names; at most %d are possible", len(r.Names), MaxNames)
	case slices.Contains(r.Excludes, nil):
		return fmt.Errorf("an exclude table is required, got none")
	}
	for _, name := range r.Names {
		if name == "" || len(name) > MaxName || strings.ContainsAny(name, "/\x00") {
			return fmt.Errorf("name %.300q: must be a base name of 1 to %d bytes", name, MaxName)
		}
	}
	return nil
}

// size returns the number of bytes of the table in the file.
func (t *Table) size() int {
	return tableHeaderBytes + padded(2*len(t.next), 4) + padded(len(t.accept), 4) + 4*len(t.alphabet.hi) + padded(2*len(t.alphabet.of), 4)
}

func (t *Table) encode(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, 32)...)
	for i, n := range []int{len(t.accept), t.classes, len(t.alphabet.hi), int(t.start)} {
		u32(b, at+4*i, n)
	}
	for _, class := range t.alphabet.ascii {
		b = binary.LittleEndian.AppendUint16(b, class)
	}
	u32(b, at+16, len(b))
	for _, to := range t.next {
		b = binary.LittleEndian.AppendUint16(b, to)
	}
	b = align(b, 4)
	u32(b, at+20, len(b))
	for s := range t.accept {
		b = append(b, flags(t.accept[s], t.final[s]))
	}
	b = align(b, 4)
	u32(b, at+24, len(b))
	for _, hi := range t.alphabet.hi {
		b = binary.LittleEndian.AppendUint32(b, uint32(hi))
	}
	u32(b, at+28, len(b))
	for _, class := range t.alphabet.of {
		b = binary.LittleEndian.AppendUint16(b, class)
	}
	return align(b, 4)
}

func flags(accept, final bool) (b byte) {
	if accept {
		b |= flagAccept
	}
	if final {
		b |= flagFinal
	}
	return b
}

func u32(b []byte, at, value int) { binary.LittleEndian.PutUint32(b[at:], uint32(value)) }

func padded(size, to int) int { return (size + to - 1) / to * to }

func align(b []byte, to int) []byte { return append(b, make([]byte, padded(len(b), to)-len(b))...) }

// checksum detects damage, not intent: four lanes process the words of 8 bytes in turn, and every step of a lane is reversible, so that
// damage of a single word is always detected.
func checksum(b []byte) uint64 {
	const multiplier, seed = 0x9e3779b97f4a7c15, 0x2545f4914f6cdd1d
	lanes := [4]uint64{seed, seed + 1, seed + 2, seed + 3}
	for i := 0; i+8 <= len(b); i += 8 {
		lane := &lanes[i/8%4]
		*lane = mathbits.RotateLeft64((*lane^binary.LittleEndian.Uint64(b[i:]))*multiplier, 29)
	}
	sum := uint64(len(b))
	for _, lane := range lanes {
		sum = mathbits.RotateLeft64((sum^lane)*multiplier, 29)
	}
	return sum
}
