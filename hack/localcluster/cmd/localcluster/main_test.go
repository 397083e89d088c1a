//go:build linux

package main

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/hack/localcluster/parts"
)

func TestParseFile_Modes_Parsed(t *testing.T) {
	source, target, mode, err := parseFile("bin/x:/usr/bin/x:0755")
	require.NoError(t, err)
	assert.Equal(t, []any{"bin/x", "/usr/bin/x", fs.FileMode(0o755)}, []any{source, target, mode})
	_, _, mode, err = parseFile("bin/x:/x")
	require.NoError(t, err)
	assert.Zero(t, mode)
	for _, bad := range []string{"", "x", ":/x", "x:y", "x:/y:99", "x:/y:07777", "x:/y:0755:z"} {
		_, _, _, err = parseFile(bad)
		assert.ErrorContains(t, err, "--file", bad)
	}
}

func TestTakeName_FirstOption_Taken(t *testing.T) {
	for _, args := range [][]string{{"--name", "h1", "get", "--name", "x"}, {"--name=h1", "get", "--name", "x"}} {
		s := &session{name: "default"}
		rest, err := s.takeName(args)
		require.NoError(t, err)
		assert.Equal(t, "h1", s.name)
		assert.Equal(t, []string{"get", "--name", "x"}, rest)
	}
	s := &session{name: "default"}
	rest, err := s.takeName([]string{"get", "--name", "x"})
	require.NoError(t, err)
	assert.Equal(t, "default", s.name)
	assert.Len(t, rest, 3)
	_, err = s.takeName([]string{"--name"})
	assert.ErrorContains(t, err, "needs the name")
}

func TestAimed_OtherClusterInEnvironment_Replaced(t *testing.T) {
	caller := []string{"HOME=/root", "KUBECONFIG=/other", "HELM_KUBEAPISERVER=https://other", "HELM_DEBUG=1"}
	assert.Equal(t, []string{"HOME=/root", "HELM_DEBUG=1", "KUBECONFIG=/this"}, aimed(caller, "/this"))
}

func TestChoose_Names_PartsOrError(t *testing.T) {
	table := parts.Table(parts.KubernetesVersion)
	all, err := choose(table, parts.Extras(), nil)
	require.NoError(t, err)
	assert.Len(t, all, len(table))
	one, err := choose(table, parts.Extras(), []string{"helm"})
	require.NoError(t, err)
	assert.Equal(t, "helm", one[0].Name)
	extra, err := choose(table, parts.Extras(), []string{"prometheus"})
	require.NoError(t, err)
	assert.Equal(t, []string{"prometheus", "promtool"}, extra[0].Programs())
	_, err = choose(table, parts.Extras(), []string{"docker"})
	assert.ErrorContains(t, err, `unknown part "docker"; supported values: kubernetes`)
}

func TestRoot_NameInEitherPlace_Parsed(t *testing.T) {
	for _, args := range [][]string{{"--name", "BAD", "status"}, {"status", "--name", "BAD"}, {"kubectl", "--name", "BAD", "get"}} {
		root := newRoot()
		root.SetArgs(args)
		err := root.Execute()
		require.Error(t, err, args)
		assert.NotContains(t, err.Error(), "unknown", args)
	}
}
