package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// errDamaged is the error of every file that Encode did not write.
var errDamaged = errors.New("decoding rules: the file is truncated or damaged")

// Decode reads a file from Encode. It accepts nothing else: encoding the decoded rules returns the same bytes.
func Decode(b []byte) (r Rules, err error) {
	if len(b) >= 8 && get(b, 0) == magic && get(b, 4) != version {
		return Rules{}, fmt.Errorf("decoding rules: the file has version %d, and only version %d is supported", get(b, 4), version)
	}
	if !whole(b) || !plausible(b) {
		return Rules{}, errDamaged
	}
	tables, include := get(b, 24), get(b, 28)
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

// whole reports whether the size and the checksum of a file match its header.
func whole(b []byte) bool {
	return len(b) >= headerBytes && len(b) <= MaxRules && len(b)%8 == 0 && get(b, 0) == magic && get(b, 16) == len(b) &&
		binary.LittleEndian.Uint64(b[checksumAt:]) == checksum(b[checkedFrom:])
}

// plausible reports whether the header's numbers are possible.
func plausible(b []byte) bool {
	tables, include := get(b, 24), get(b, 28)
	return get(b, 20) < int(targets) && include <= 1 && tables >= include && tables <= MaxExcludes+include && len(b) >= headerBytes+4*tables
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

// decodeTable reads a table. It returns nil if the table reaches beyond the file or refers to missing states or classes.
func decodeTable(b []byte, at int) *Table {
	if at > len(b)-tableHeaderBytes {
		return nil
	}
	states, ranges := get(b, at), get(b, at+8)
	t := &Table{alphabet: &alphabet{}, classes: get(b, at+4), start: uint16(get(b, at+12))}
	// The limits prevent overflows of the products below.
	if min(states, t.classes, ranges) < 1 || states > MaxStates || max(t.classes, ranges) > MaxTable || get(b, at+12) >= states {
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
	t.alphabet.hi = ends(b[endsAt:], ranges)
	for _, f := range b[flagsAt : flagsAt+states] {
		t.accept = append(t.accept, f&flagAccept != 0)
	}
	if t.alphabet.hi == nil {
		return nil
	}
	// If the file differs, Encode did not write it.
	t.findFinal()
	return t
}

// ends returns the last characters of ranges that cover all characters except ASCII, or nil.
func ends(b []byte, ranges int) []rune {
	hi, last := make([]rune, ranges), utf8.RuneSelf-1
	for i := range hi {
		next := get(b, 4*i)
		if next <= last || next > utf8.MaxRune {
			return nil
		}
		hi[i], last = rune(next), next
	}
	if last != utf8.MaxRune {
		return nil
	}
	return hi
}

// words returns count numbers of 2 bytes that are all below a bound, or nil.
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
