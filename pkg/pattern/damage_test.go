package pattern

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// selectedProcesses returns processes that the example rules select.
func selectedProcesses() []process {
	var out []process
	for _, p := range exampleProcesses {
		if p.selected {
			out = append(out, p)
		}
	}
	return out
}

// damagedFile changes up to four bytes or numbers of 4 bytes of a file, mostly in its structure, or truncates it.
func damagedFile(r *rand.Rand, b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + r.IntN(4) {
		at := r.IntN(len(b))
		if r.IntN(2) == 0 {
			at = r.IntN(headerBytes + 12 + 32)
		}
		switch r.IntN(4) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.Uint32())
		default:
			extremes := append(extremes(len(b)), r.IntN(len(b)))
			if at = at / 4 * 4; at+4 <= len(b) {
				u32(b, at, extremes[r.IntN(len(extremes))])
			}
		}
	}
	if r.IntN(4) == 0 {
		b = b[:r.IntN(len(b)+1)]
	}
	return b
}

// TestNative_TruncatedOrDamagedFile_SelectsNothing: the harness is built with a sanitizer that stops it at reads outside of the file or of
// a text.
func TestNative_TruncatedOrDamagedFile_SelectsNothing(t *testing.T) {
	good, err := exampleRules(t).Encode()
	require.NoError(t, err)
	natives := startNatives(t)
	selected := selectedProcesses()
	none := make([]process, len(selected))
	for i, p := range selected {
		none[i] = process{argv: p.argv, exe: p.exe}
	}
	everywhere := func(file []byte, processes []process, about string) {
		for _, native := range natives {
			native.expectFile(file, processes, about)
		}
	}
	everywhere(good, selected, "undamaged")
	for at := range good {
		everywhere(good[:at], none[:1], "truncated")
		flipped := append([]byte(nil), good...)
		flipped[at] ^= 1 << (at % 8)
		everywhere(flipped, none[:1], "one bit")
	}
	everywhere(append(append([]byte(nil), good...), make([]byte, 8)...), none, "longer")
	r := rand.New(rand.NewPCG(setting(t, "PATTERN_SEED", 1), 2))
	for range cases(t) / 20 {
		b := damagedFile(r, good)
		if string(b) != string(good) {
			everywhere(b, none, "damaged")
		}
	}
	for _, native := range natives {
		native.finish()
	}
}

// extremes returns numbers at and beyond every bound of a file.
func extremes(size int) []int {
	return []int{0, 1, 2, 3, 34, 255, size - 4, size - 1, size, size + 1, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc}
}

// hostileFiles returns files with the right checksum, in which each number of the structure of a good file takes each extreme.
func hostileFiles(t *testing.T, good []byte) [][]byte {
	t.Helper()
	offsets := []int{16, 20, 24, 28, 32, 36, 40, 44, 48}
	for i := range 3 {
		for field := range 8 {
			offsets = append(offsets, get(good, headerBytes+4*i)+4*field)
		}
	}
	var files [][]byte
	for _, at := range offsets {
		for _, value := range extremes(len(good)) {
			b := append([]byte(nil), good...)
			u32(b, at, value)
			files = append(files, resealed(b))
		}
	}
	many := exampleRules(t)
	for len(many.Excludes) < 3*MaxExcludes {
		many.Excludes = append(many.Excludes, many.Excludes[0])
	}
	long := Rules{Names: []string{"python3"}}.encode()
	long[headerBytes] = 255
	return append(files, many.encode(), resealed(long))
}

// TestNative_HostileFile_ReadsNothingOutside: a file with the right checksum was written by Encode, or is hostile. The test ignores its
// answers, and checks its reads.
func TestNative_HostileFile_ReadsNothingOutside(t *testing.T) {
	good, err := exampleRules(t).Encode()
	require.NoError(t, err)
	files := hostileFiles(t, good)
	r := rand.New(rand.NewPCG(setting(t, "PATTERN_SEED", 1), 3))
	for range cases(t) / 10 {
		b := damagedFile(r, good)
		if len(b) >= headerBytes {
			b = b[:len(b)/8*8]
			if r.IntN(2) == 0 {
				u32(b, 16, len(b))
			}
			b = resealed(b)
		}
		files = append(files, b)
	}
	natives, decoded := startNatives(t), 0
	for _, b := range files {
		rules, err := Decode(b)
		if err == nil {
			decoded++
		}
		for _, native := range natives {
			for _, p := range append(exampleProcesses, process{exe: "/usr/bin/python3x"}) {
				p.selected = rules.Match(p.argv, p.exe)
				native.expectFile(b, []process{p}, "hostile")
				if err != nil {
					native.wanted[len(native.wanted)-1] = '?'
				}
			}
		}
	}
	for _, native := range natives {
		native.finish()
	}
	t.Logf("%d of %d files were decoded", decoded, len(files))
}

func TestDecode_HostileFile_Refused(t *testing.T) {
	good, err := exampleRules(t).Encode()
	require.NoError(t, err)
	table := get(good, headerBytes)
	flags, ends := get(good, table+20), get(good, table+24)
	for what, change := range map[string]func(b []byte){
		"the last range ends early":          func(b []byte) { u32(b, ends+4*(get(b, table+8)-1), 0x10fffe) },
		"a range ends before it begins":      func(b []byte) { u32(b, get(b, get(b, headerBytes+8)+24), 0x7f) },
		"a state is final that has exits":    func(b []byte) { b[flags+get(b, table+12)] ^= flagFinal },
		"an unknown flag":                    func(b []byte) { b[flags] |= 4 },
		"two tables share their transitions": func(b []byte) { u32(b, table+16, get(b, get(b, headerBytes+4)+16)) },
		"bytes after the names":              func(b []byte) { b[len(b)-1] = 1 },
	} {
		b := append([]byte(nil), good...)
		change(b)
		require.NotEqual(t, good, b, what)
		_, err := Decode(resealed(b))
		require.ErrorIs(t, err, errDamaged, what)
	}
}

func FuzzDecode(f *testing.F) {
	good, err := exampleRules(f).Encode()
	require.NoError(f, err)
	f.Add(good, "python3 train.py")
	f.Add(good[:headerBytes], "")
	f.Fuzz(func(t *testing.T, input []byte, text string) {
		b := append([]byte(nil), input...)
		if len(b) >= headerBytes && len(b)%8 == 0 {
			u32(b, 16, len(b))
			b = resealed(b)
		}
		rules, err := Decode(b)
		if err != nil {
			return
		}
		rules.Match([]string{text}, text)
		again, err := rules.Encode()
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
