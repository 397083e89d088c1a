package pattern

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// selectedProcesses are processes that the example rules select.
func selectedProcesses() []process {
	var out []process
	for _, p := range exampleProcesses {
		if p.selected {
			out = append(out, p)
		}
	}
	return out
}

// damagedFile changes up to four bytes or numbers of 4 bytes of a file, mostly where its structure is, or cuts it off.
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
			extremes := []int{0, 1, len(b) - 1, len(b), len(b) + 1, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc, r.IntN(len(b))}
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

// The harness has a sanitizer that ends it when it reads outside of the file or of a text.
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

// A file with the right checksum is what Encode made, or hostile: its answers do not count, but what it reads does.
func TestNative_HostileFile_ReadsNothingOutside(t *testing.T) {
	good, err := exampleRules(t).Encode()
	require.NoError(t, err)
	natives := startNatives(t)
	r := rand.New(rand.NewPCG(setting(t, "PATTERN_SEED", 1), 3))
	decoded := 0
	for range cases(t) / 10 {
		b := damagedFile(r, good)
		if len(b) >= headerBytes {
			b = b[:len(b)/8*8]
			if r.IntN(2) == 0 {
				u32(b, 16, len(b))
			}
			b = resealed(b)
		}
		rules, err := Decode(b)
		if err == nil {
			decoded++
		}
		for _, native := range natives {
			for _, p := range exampleProcesses {
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
	t.Logf("%d files were decoded", decoded)
}

func FuzzDecode(f *testing.F) {
	good, err := exampleRules(f).Encode()
	require.NoError(f, err)
	f.Add(good, "python3 train.py")
	f.Add(good[:headerBytes], "")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
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
