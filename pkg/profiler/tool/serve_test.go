package tool

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// serviceOf returns the service of an image. Its test succeeds if the installed library equals the image's, and provable is set.
func serviceOf(t *testing.T, provable bool) Service {
	t.Helper()
	s := Service{Tools: t.TempDir(), Versions: []string{"1"}}
	s.Importer = importerOf(t, image(t, "1", copies))
	s.Programs, s.Container = t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(s.Path, "target-linux-x64/lib/libtool.so"), []byte("library"), 0o644))
	// It replaces prism-run: its report contains the process.
	run := "exit 1"
	if provable {
		run = `[ "$(cat ` + s.Tools + `/1-*/target-linux-x64/lib/libtool.so)" = library ] || exit 1
mkdir ` + s.Container + `/results/s1; echo prism-proof >` + s.Container + `/results/s1/report.qdstrm`
	}
	require.NoError(t, writeProgram(filepath.Join(s.Programs, runProgram), []byte("#!/bin/sh\n"+run+"\n")))
	return s
}

// only returns the only installed version.
func only(t *testing.T, s Service) manifest.Installed {
	t.Helper()
	all, err := manifest.List(s.Tools)
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// TestService_DirectoryDamaged_CopiedAgain: installed files are otherwise not copied again, and the test would always fail.
func TestService_DirectoryDamaged_CopiedAgain(t *testing.T) {
	t.Parallel()
	s := serviceOf(t, true)
	_, err := s.once(t.Context())
	require.NoError(t, err)
	library := filepath.Join(only(t, s).Dir, "target-linux-x64/lib/libtool.so")
	for name, damage := range map[string]func() error{
		"other content": func() error { return os.WriteFile(library, []byte("lib"), 0o644) },
		"gone":          func() error { return os.Remove(library) },
	} {
		require.NoError(t, damage(), name)
		_, err := s.once(t.Context())
		require.NoError(t, err, name)
		require.NoError(t, only(t, s).Verify(), name)
	}
}

// TestService_ProofFails_EarlierOneTakenBack: claims are only planned with tested versions.
func TestService_ProofFails_EarlierOneTakenBack(t *testing.T) {
	t.Parallel()
	s := serviceOf(t, false)
	installed, err := s.Install(t.Context(), s.Tools)
	require.NoError(t, err)
	installed.Proven = time.Now().UTC()
	require.NoError(t, installed.Write(installed.Dir))
	_, err = s.once(t.Context())
	require.ErrorContains(t, err, "proving Nsight Systems 1")
	assert.Zero(t, only(t, s).Proven)
}

// TestInstall_NoExec_Refused: containers could not execute the programs.
func TestInstall_NoExec_Refused(t *testing.T) {
	t.Parallel()
	source, dir := image(t, "1", copies), t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, 0)) })
	_, err := source.Install(t.Context(), dir)
	require.ErrorContains(t, err, "is mounted with the option noexec; set the chart's value stateDir")
}
