package pattern

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRules_Encoded_DecodeToTheSame(t *testing.T) {
	include, err := Compile(`^(?!.*nsys( |$)).*python.*train`, Perl)
	require.NoError(t, err)
	exclude, err := Compile(`--help`, RE2)
	require.NoError(t, err)
	rules := Rules{Target: CommandLine, Include: include, Excludes: []*Table{exclude}, Names: []string{"bash", "cat"}}
	b, err := rules.Encode()
	require.NoError(t, err)
	again, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, rules, again)
	require.True(t, again.Match([]string{"python3", "train.py"}, "/usr/bin/python3"))
	require.False(t, again.Match([]string{"python3", "train.py", "--help"}, "/usr/bin/python3"))
	require.False(t, again.Match([]string{"python3", "train.py"}, "/bin/bash"))
}
