package cdihook

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Output of NVIDIA's programs, built from their modules. nvidia-cdi-hook exists since toolkit 1.16.
var helps = map[string][]string{
	"nvidia-ctk-1.15.0":      {"chmod", "create-symlinks", "update-ldcache"},
	"nvidia-cdi-hook-1.16.2": {"chmod", "create-symlinks", "update-ldcache"},
	"nvidia-cdi-hook-1.17.4": {"chmod", "create-symlinks", "update-ldcache"},
	"nvidia-cdi-hook-1.17.8": {"chmod", "create-symlinks", "enable-cuda-compat", "update-ldcache"},
	"nvidia-ctk-1.17.8":      {"chmod", "create-symlinks", "enable-cuda-compat", "update-ldcache"},
	"nvidia-cdi-hook-1.18.0": {"chmod", "create-symlinks", "disable-device-node-modification", "enable-cuda-compat", "update-ldcache"},
	"nvidia-cdi-hook-1.19.0": {"chmod", "create-symlinks", "disable-device-node-modification", "enable-cuda-compat", "update-ldcache"},
	"nvidia-cdi-hook-1.20.1": {
		"apply-cuda-memory-limits", "chmod", "create-symlinks", "disable-device-node-modification", "enable-cuda-compat", "update-application-profile",
		"update-ldcache",
	},
	"nvidia-ctk-1.20.1": {
		"apply-cuda-memory-limits", "chmod", "create-symlinks", "disable-device-node-modification", "enable-cuda-compat", "update-application-profile",
		"update-ldcache",
	},
}

func TestParse_HelpOfEachVersion_ItsHooks(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("testdata")
	require.NoError(t, err)
	require.Len(t, files, len(helps))
	for name, want := range helps {
		help, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		require.NoError(t, err)
		assert.Equal(t, want, Parse(string(help)), name)
	}
}

func TestParse_OtherText_None(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "No help topic for 'x'\n", "OPTIONS:\n   --help, -h  show help\n", "   update-ldcache  outside of a section\n", "COMMANDS:\n",
		"COMMANDS:\n" + strings.Repeat(" ", 37) + "update-ldcache  continues a line\n",
	} {
		assert.Empty(t, Parse(text), text)
	}
}

func TestArgs_EachProgram_HookAfterItsCommand(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"nvidia-cdi-hook", "chmod"}, Args("/usr/bin/nvidia-cdi-hook", "chmod"))
	assert.Equal(t, []string{"nvidia-ctk", "hook", "chmod"}, Args("/usr/bin/nvidia-ctk", "chmod"))
	assert.Equal(t, []string{"nvidia-ctk.real", "chmod"}, Args("/opt/nvidia-ctk.real", "chmod"))
}

// script returns a program that prints its arguments as a help, or runs the body.
func script(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	syscall.ForkLock.RLock() // executing the file fails while a forked child holds it open for writing
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}

const listing = "echo COMMANDS:; for word in \"$@\"; do echo \"   x$word  it\"; done"

func TestHooks_Program_RunOnceWithItsCommand(t *testing.T) {
	t.Parallel()
	count := filepath.Join(t.TempDir(), "count")
	for name, want := range map[string][]string{"nvidia-cdi-hook": {"x--help"}, CTKName: {"x--help", "xhook"}} {
		require.NoError(t, os.WriteFile(count, nil, 0o600))
		hooks, err := Asker{Root: "/"}.Hooks(t.Context(), script(t, name, "echo run >>"+count+"\n"+listing))
		require.NoError(t, err)
		assert.Equal(t, want, hooks)
		runs, err := os.ReadFile(count)
		require.NoError(t, err)
		assert.Equal(t, "run\n", string(runs))
	}
}

// TestHooks_RootOfTheHost_ProgramRunsInIt: a program uses the libraries and the shell of the host.
func TestHooks_RootOfTheHost_ProgramRunsInIt(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, for chroot")
	}
	_, err := Asker{Root: t.TempDir()}.Hooks(t.Context(), script(t, "nvidia-cdi-hook", listing))
	require.ErrorContains(t, err, "no such file or directory")
}

func TestHooks_NoHelp_ErrorSaysWhy(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"echo wrong; exit 3":               `exit code 3: "wrong\n"`,
		"echo hello":                       `no commands in its output: "hello\n"`,
		"kill -9 $$":                       "signal: killed",
		"yes | head -c 1000000; exit 1":    "exit code 1",
		"exec /does/not/exist 2>/dev/null": "exit code",
	} {
		path := script(t, "nvidia-cdi-hook", body)
		_, err := Asker{Root: "/"}.Hooks(t.Context(), path)
		require.ErrorContains(t, err, "reading the help of "+path+" --help: ")
		require.ErrorContains(t, err, want)
		assert.Less(t, len(err.Error()), 1000)
	}
	_, err := Asker{Root: "/"}.Hooks(t.Context(), "/does/not/exist")
	require.ErrorContains(t, err, "no such file or directory")
}

// TestHooks_ProgramHangs_Killed: its child processes are killed, too.
func TestHooks_ProgramHangs_Killed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	begun := filepath.Join(t.TempDir(), "begun")
	path := script(t, "nvidia-cdi-hook", "echo >"+begun+"\nsleep 3600")
	done := make(chan error, 1)
	go func() {
		_, err := Asker{Root: "/"}.Hooks(ctx, path)
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, time.Minute, time.Millisecond)
	cancel(assert.AnError)
	require.ErrorIs(t, <-done, assert.AnError)
}
