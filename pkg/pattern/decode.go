package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// errDamaged is all that can be said of a file that Encode did not write.
var errDamaged = errors.New("decoding rules: the file is truncated or damaged")

// Decode reads the file that Encode makes. It accepts nothing else: a file that was decoded is encoded to the same bytes.
func Decode(b []byte) (r Rules, err error) {
	if len(b) >= 8 && get(b, 0) == magic && get(b, 4) != version {
		return Rules{}, fmt.Errorf("decoding rules: the file has version %d, and only version %d is supported", get(b, 4), version)
	}
	if len(b) < headerBytes || len(b) > MaxRules || len(b)%8 != 0 || get(b, 0) != magic || get(b, 16) != len(b) ||
		binary.LittleEndian.Uint64(b[checksumAt:]) != checksum(b[checkedFrom:]) {
		return Rules{}, errDamaged
	}
	tables, include := get(b, 24), get(b, 28)
	if get(b, 20) >= int(targets) || include > 1 || tables < include || tables > MaxExcludes+include || len(b) < headerBytes+4*tables {
		return Rules{}, errDamaged
	}
	r.Target = Target(get(b, 20))
	for i := range tables {
		t := decodeTable(b, get(b, headerBytes+4*i))
		if t == nil {
			return Rules{}, errDamaged
		}
		if i < include {
			r.Include = t
		} else {
			r.Excludes = append(r.Excludes, t)
		}
	}
	if r.Names, err = decodeNames(b, get(b, 32), get(b, 36)); err != nil {
		return Rules{}, err
	}
	if again, err := r.Encode(); err != nil || string(again) != string(b) {
		return Rules{}, errDamaged
	}
	return r, nil
}

func decodeNames(b []byte, at, count int) (names []string, err error) {
	for range min(count, MaxNames+1) {
		if at >= len(b) || at+1+int(b[at]) > len(b) {
			return nil, errDamaged
		}
		names = append(names, string(b[at+1:at+1+int(b[at])]))
		at += 1 + int(b[at])
	}
	return names, nil
}

// decodeTable reads a table, or returns nil when it reaches beyond the file or refers to states or classes that it has not.
func decodeTable(b []byte, at int) *Table {
	if at > len(b)-tableHeaderBytes {
		return nil
	}
	states, ranges := get(b, at), get(b, at+8)
	t := &Table{alphabet: &alphabet{}, classes: get(b, at+4), start: uint16(get(b, at+12))}
	// The limits keep the products below from overflowing.
	if states < 1 || states > MaxStates || t.classes < 1 || t.classes > MaxTable || ranges < 1 || ranges > MaxTable || get(b, at+12) >= states {
		return nil
	}
	t.next = words(b, get(b, at+16), states*t.classes, states)
	t.alphabet.of = words(b, get(b, at+28), ranges, t.classes)
	ascii := words(b, at+32, utf8.RuneSelf, t.classes)
	flagsAt, endsAt := get(b, at+20), get(b, at+24)
	if t.next == nil || t.alphabet.of == nil || ascii == nil || flagsAt > len(b)-states || endsAt > len(b)-4*ranges {
		return nil
	}
	copy(t.alphabet.ascii[:], ascii)
	for _, f := range b[flagsAt : flagsAt+states] {
		t.accept, t.final = append(t.accept, f&flagAccept != 0), append(t.final, f&flagFinal != 0)
	}
	last := utf8.RuneSelf - 1
	for i := range ranges {
		hi := get(b, endsAt+4*i)
		if hi <= last || hi > utf8.MaxRune {
			return nil
		}
		t.alphabet.hi, last = append(t.alphabet.hi, rune(hi)), hi
	}
	final := t.final
	if t.findFinal(); last != utf8.MaxRune || !slices.Equal(final, t.final) {
		return nil
	}
	return t
}

// words are count numbers of 2 bytes that are all below a bound, or nil.
func words(b []byte, at, count, below int) []uint16 {
	if count > len(b)/2 || at > len(b)-2*count {
		return nil
	}
	out := make([]uint16, count)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(b[at+2*i:])
		if int(out[i]) >= below {
			return nil
		}
	}
	return out
}

func get(b []byte, at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
