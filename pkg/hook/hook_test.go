package hook_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/hook"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

const device = "6f0c1d2e-0000-4000-8000-000000000000-gpu-3f2a9c1b-mps-1-GPU-3f2a9c1b"

// stateOf returns the OCI state of a container.
func stateOf(t *testing.T, pid int, bundle string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"ociVersion": "1.2.0", "id": "c", "status": "creating", "pid": pid, "bundle": bundle})
	require.NoError(t, err)
	return string(text)
}

// bundleOf writes the bundle of a container with that environment.
func bundleOf(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"ociVersion": "1.2.0", "process": map[string]any{"args": []string{"sh"}, "env": env}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	return dir
}

// exclusiveArgs returns the arguments for a device whose clients share 1 GiB in a directory.
func exclusiveArgs(socket, shm string) []string {
	return []string{"exclusive", "--socket", socket, "--claim", "uid", "--device", device, "--shm", shm, "--shm-size", "1073741824"}
}

func exclusive(stdin string) error {
	return hook.Program{Stdin: strings.NewReader(stdin)}.Run(exclusiveArgs("/run/no.sock", "/run/shm"))
}

func TestExclusive_OtherMark_Refused(t *testing.T) {
	t.Parallel()
	own, other := protocol.Mark(device)+"=mps", protocol.Mark("other")+"=gpu"
	const sentence = "a container that uses a GPU with MPS cannot use another GPU, MIG device or share, " +
		"but this one also uses a device of type %TYPE%: keep one in the container's resources.claims, and use the other in another container"
	for name, c := range map[string]struct {
		env  []string
		want string // the type in the refusal
	}{
		"one share":                      {[]string{"PATH=/bin", own}, ""},
		"its mark twice":                 {[]string{own, own}, ""},
		"no mark at all":                 {nil, ""},
		"another device":                 {[]string{own, other}, `"gpu"`},
		"another device before it":       {[]string{other, own}, `"gpu"`},
		"a mark of the tenant":           {[]string{"PRISM_DEVICE_00000000=x", own}, `"x"`},
		"an own mark with another value": {[]string{strings.TrimSuffix(own, "mps") + "monitor", own}, ""},
		"a mark without a value":         {[]string{own, protocol.Mark("other")}, `""`},
		"a long value is shortened":      {[]string{own, other + strings.Repeat("x", 1000)}, `"gpu` + strings.Repeat("x", 29) + `"`},
		"a value with lines is quoted":   {[]string{own, protocol.Mark("other") + "=a\nb"}, `"a\nb"`},
		"names that only look like a mark": {
			[]string{own, "PRISM_DEVICE_=a", "PRISM_DEVICE_0000000=a", "PRISM_DEVICE_0000000G=a", "PRISM_DEVICE_000000000=a", "X" + other}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := exclusive(stateOf(t, 1, bundleOf(t, c.env...)))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, strings.Replace(sentence, "%TYPE%", c.want, 1))
		})
	}
}

// TestExclusive_InvalidBundle_Refused: the container fails, and only config.json is opened.
func TestExclusive_InvalidBundle_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bundle func(t *testing.T, dir string) string
		want   string
	}{
		"relative":        {func(*testing.T, string) string { return "bundle" }, `must be an absolute path without ".."`},
		"empty":           {func(*testing.T, string) string { return "" }, `must be an absolute path without ".."`},
		"upwards":         {func(_ *testing.T, dir string) string { return dir + "/../x" }, `must be an absolute path without ".."`},
		"missing":         {func(_ *testing.T, dir string) string { return dir + "/x" }, "no such file or directory"},
		"a file":          {func(_ *testing.T, dir string) string { return dir + "/config.json" }, "not a directory"},
		"without a file":  {func(t *testing.T, _ string) string { t.Helper(); return t.TempDir() }, "opening config.json"},
		"a link":          {linkedBundle, "opening the bundle"},
		"a linked config": {linkedConfig, "too many levels of symbolic links"},
		"a pipe":          {pipeConfig, "it is not a regular file"},
		"a huge config":   {hugeConfig, "it is larger than 16777216 bytes"},
		"no JSON":         {func(t *testing.T, dir string) string { t.Helper(); return writeConfig(t, dir, "{") }, "unexpected end of JSON input"},
		"env is no list": {func(t *testing.T, dir string) string {
			t.Helper()
			return writeConfig(t, dir, `{"process":{"env":"a"}}`)
		}, "cannot unmarshal string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, exclusive(stateOf(t, 1, c.bundle(t, bundleOf(t)))), c.want)
		})
	}
}

func writeConfig(t *testing.T, dir, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
	return dir
}

func linkedBundle(t *testing.T, dir string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "bundle")
	require.NoError(t, os.Symlink(dir, link))
	return link
}

func linkedConfig(t *testing.T, dir string) string {
	t.Helper()
	own := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(dir, "config.json"), filepath.Join(own, "config.json")))
	return own
}

func pipeConfig(t *testing.T, _ string) string {
	t.Helper()
	own := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(own, "config.json"), 0o600))
	return own
}

func hugeConfig(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.Truncate(filepath.Join(dir, "config.json"), 16<<20+1))
	return dir
}

func TestExclusive_InvalidState_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stdin, want string }{
		"empty":    {"", "unexpected end of JSON input"},
		"no JSON":  {"pid 7", "invalid character"},
		"too long": {`{"id":"` + strings.Repeat("x", 1<<20) + `"}`, "it is larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := exclusive(c.stdin)
			require.ErrorContains(t, err, "reading the OCI state of the container on stdin")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRun_InvalidArguments_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none":               {nil, "no subcommand; supported values: exclusive, injected, memory-limit, profile"},
		"unknown subcommand": {[]string{"run"}, `unknown subcommand "run"; supported values: exclusive, injected, memory-limit, profile`},
		"no device":          {[]string{"exclusive", "--socket", "s", "--claim", "c", "--shm", "d"}, "exclusive: -device: required"},
		"no size":            {[]string{"exclusive", "--shm-size", "1Gi"}, `exclusive: invalid value "1Gi" for flag -shm-size: parse error`},
		"unknown flag":       {[]string{"exclusive", "--device", "d", "--node", "n"}, "exclusive: flag provided but not defined: -node"},
		"unknown argument":   {[]string{"exclusive", "--device", "d", "e"}, `exclusive: unknown argument "e"`},
		"without a value":    {[]string{"exclusive", "--device"}, "exclusive: flag needs an argument: -device"},
		"parts of a limit":   {[]string{"memory-limit", "--device", "d", "--claim", "c"}, "memory-limit: -socket: required"},
		"help":               {[]string{"exclusive", "-h"}, "exclusive: flag: help requested"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdin := strings.NewReader("not read")
			require.EqualError(t, hook.Program{Stdin: stdin}.Run(c.args), c.want)
			assert.Equal(t, 8, stdin.Len())
		})
	}
}
