package pattern

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exampleRules contain a part of every kind.
func exampleRules(t testing.TB) Rules {
	t.Helper()
	return Rules{
		Target:   CommandLine,
		Include:  compiled(t, `^(?!.*nsys( |$)).*python.*train`, Perl),
		Excludes: []*Table{compiled(t, `--help`, RE2), compiled(t, `é[^a-z]`, Perl)},
		Names:    []string{"bash", "cat"},
	}
}

var exampleProcesses = []process{
	{argv: []string{"python3", "train.py"}, exe: "/usr/bin/python3", selected: true},
	{argv: []string{"/usr/bin/python3.11", "-m", "é", "train", ""}, exe: "", selected: false},
	{argv: []string{"python3", "train.py"}, exe: "/bin/bash", selected: false},
	{argv: []string{"python3", "train.py"}, exe: "cat", selected: false},
	{argv: []string{"python3", "train.py"}, exe: "/cat/cats", selected: true},
	{argv: []string{"python3", "train.py", "--help"}, exe: "/usr/bin/python3", selected: false},
	{argv: []string{"nsys", "python3", "train.py"}, exe: "/usr/bin/python3", selected: false},
	{argv: nil, exe: "/usr/bin/python3", selected: false},
}

func TestRules_Processes_SelectedByIncludeExcludesAndNames(t *testing.T) {
	rules := exampleRules(t)
	for _, p := range exampleProcesses {
		require.Equal(t, p.selected, rules.Match(p.argv, p.exe), "%q", p)
	}
	require.True(t, Rules{}.Match(nil, ""), "without rules, everything is selected")
	argv0 := Rules{Target: Argv0, Include: compiled(t, `^b$`, Perl)}
	require.True(t, argv0.Match([]string{"b", "a"}, "/a"))
	require.False(t, argv0.Match(nil, "/b"))
}

func TestRules_Encoded_DecodeToTheSame(t *testing.T) {
	rules := exampleRules(t)
	b, err := rules.Encode()
	require.NoError(t, err)
	again, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, rules, again)
	empty, err := Rules{}.Encode()
	require.NoError(t, err)
	require.Len(t, empty, headerBytes)
}

func TestRules_BeyondTheLimits_Refused(t *testing.T) {
	table := compiled(t, "a", Perl)
	for reason, rules := range map[string]Rules{
		"unknown target 3":             {Target: targets},
		"at most 32 are possible":      {Excludes: make([]*Table, MaxExcludes+1)},
		"an exclude table is required": {Excludes: []*Table{table, nil}},
		"at most 1024 are possible":    {Names: make([]string, MaxNames+1)},
		"must be a base name of 1":     {Names: []string{""}},
		`name "a/b"`:                   {Names: []string{"a/b"}},
		"to 255 bytes":                 {Names: []string{strings.Repeat("a", MaxName+1)}},
	} {
		_, err := rules.Encode()
		require.ErrorContains(t, err, reason)
	}
	large := compiled(t, `^(?:(?!\d)\w){300}[^\p{Lu}x]{300}\p{Greek}{300}(?:\p{Ll}\p{Nd}){300}$`, Perl)
	rules := Rules{}
	for range MaxExcludes {
		rules.Excludes = append(rules.Excludes, large)
	}
	_, err := rules.Encode()
	require.ErrorContains(t, err, "write fewer or shorter patterns")
}

// resealed updates the checksum.
func resealed(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[checksumAt:], checksum(b[checkedFrom:]))
	return b
}

func TestDecode_UnknownVersionOrDamage_Refused(t *testing.T) {
	b, err := exampleRules(t).Encode()
	require.NoError(t, err)
	newer := append([]byte(nil), b...)
	u32(newer, 4, version+1)
	_, err = Decode(resealed(newer))
	require.ErrorContains(t, err, "version 2")
	for at := range b {
		if at >= 4 && at < 8 {
			continue
		}
		damaged := append([]byte(nil), b...)
		damaged[at] ^= 1 << (at % 8)
		_, err := Decode(damaged)
		require.ErrorIs(t, err, errDamaged, "byte %d", at)
		_, err = Decode(b[:at])
		require.Error(t, err)
	}
}

func TestRules_LongTexts_FirstBytesCount(t *testing.T) {
	natives := startNatives(t)
	ends := Rules{Include: compiled(t, `x.?$`, Perl)}
	long := strings.Repeat("a", MaxText-1)
	tests := []process{
		{argv: []string{long + "x"}, selected: true},
		{argv: []string{long + "xb", "c"}, selected: true},
		{argv: []string{long[1:] + "x", "b"}, selected: true},
		{argv: []string{long[2:] + "x", "b"}, selected: false},
		{argv: []string{long[1:] + "x" + "é"}, selected: true},
		{argv: []string{long[1:], "x", "x"}, selected: true},
		{argv: []string{long, "x", "x"}, selected: false},
		{argv: []string{long[2:], "x", "x"}, selected: true},
		{argv: append(strings.Split(strings.Repeat(" ", MaxText-2), " "), "x", "y"), selected: true},
		{argv: append(strings.Split(strings.Repeat(" ", MaxText-1), " "), "x", "y"), selected: false},
	}
	for i, p := range tests {
		require.Equal(t, p.selected, ends.Match(p.argv, p.exe), "case %d", i)
	}
	path := Rules{Target: Executable, Include: ends.Include}
	for _, native := range natives {
		native.expect(ends, tests, "long texts")
		native.expect(path, []process{{argv: []string{"a"}, exe: long + "xbc", selected: true}, {exe: long + "b", selected: false}}, "long paths")
		native.finish()
	}
}
