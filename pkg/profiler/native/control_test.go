package native

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// parser is prism-run's parser of commands, with checks of its memory.
type parser struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func newParser(t testing.TB) parser {
	t.Helper()
	programs(t) // or skip
	program := filepath.Join(t.TempDir(), "control")
	build := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined",
		"-fno-sanitize-recover=all", "-o", program, "testdata/control.c", "run/control.c", "run/base.c")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	command := exec.Command(program)
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		assert.NoError(t, in.Close())
		assert.NoError(t, command.Wait())
	})
	return parser{in, bufio.NewReader(out)}
}

// parse returns the parser's fields of a command, after whether it is one.
func (p parser) parse(t testing.TB, raw []byte) (is, fields string) {
	t.Helper()
	_, err := p.in.Write(append(binary.NativeEndian.AppendUint32(nil, uint32(len(raw))), raw...))
	require.NoError(t, err)
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	is, fields, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return is, fields
}

// fieldsOf returns the fields of a command in the parser's form.
func fieldsOf(c session.Control) string {
	verb := map[session.Verb]int{start: 1, stop: 2, cancel: 3}[c.Verb]
	word := map[string]string{"": "", "None": "none", "LBR": "lbr", "FramePointer": "fp", "DWARF": "dwarf"}[c.Backtrace]
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	return fmt.Sprintf("id=%s verb=%d at=%d until=%d frequency=%d backtrace=%s", c.ID, verb, at(c.At), at(c.Until), c.SamplingFrequencyHz, word)
}

// FuzzControl: prism-run takes every command that the plugin encodes, and nothing that the plugin does not take for the same command.
func FuzzControl(f *testing.F) {
	valid := func(c session.Control) string {
		raw, err := c.Encode()
		require.NoError(f, err)
		return string(raw)
	}
	whole := valid(session.Control{ID: uuid(1), Verb: start, At: time.Unix(1, 2), Until: time.Unix(3, 4), SamplingFrequencyHz: 8000, Backtrace: "DWARF"})
	for _, seed := range []string{
		whole, valid(session.Control{ID: uuid(2), Verb: cancel}), strings.TrimSuffix(whole, "\n"), whole + whole, whole + "new=1\n",
		whole + strings.Repeat("x", session.MaxControl) + "\n", strings.ReplaceAll(whole, "=", "=\x00"), strings.ReplaceAll(whole, "at=", "at=-"),
		"", "\n", "id=" + uuid(3) + "\n", "id=" + uuid(3) + "\nverb=start\n", "id=" + uuid(3) + "0\nverb=Start\n", "id=" + uuid(3)[1:] + "\nverb=Start\n",
		"id=" + uuid(3) + "\nverb=Start\nat=9223372036854775807\nuntil=9223372036854775808\n", "id=" + uuid(3) + "\nverb=Start\nbacktrace=dwarfs\n",
		"id=" + uuid(3) + "\nverb=Start\nsamplingFrequencyHz=2147483647\n", "id=" + uuid(3) + "\nverb=Start\nat=\n",
	} {
		f.Add([]byte(seed))
	}
	p := newParser(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		is, fields := p.parse(t, raw)
		want, ok := session.ParseControl(raw)
		if is == "1" {
			require.True(t, ok, "%q", raw)
			require.Equal(t, fieldsOf(want), fields, "%q", raw)
		}
		const highest = 1_000_000_000
		if !ok || want.SamplingFrequencyHz > highest || want.At.After(time.Unix(0, 1<<63-1)) {
			return
		}
		encoded, err := want.Encode()
		require.NoError(t, err)
		is, fields = p.parse(t, encoded)
		require.Equal(t, "1", is, "%q", encoded)
		require.Equal(t, fieldsOf(want), fields)
	})
}
