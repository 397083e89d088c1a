package hook_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/pattern"
)

// TestProfile_StaticProgram_NotedIfSelected: a shell that starts the profiled process is not a lost report. Programs are compared as the
// library in processes does: by the executed file.
func TestProfile_StaticProgram_NotedIfSelected(t *testing.T) {
	t.Parallel()
	const linked = `cp "$STATIC" usr/bin/busybox; ln -s busybox usr/bin/sh`
	const script = `cp "$STATIC" usr/bin/run; printf '#!/usr/bin/run  -x y\t\n' >usr/bin/app`
	for name, c := range map[string]struct {
		setup  string
		args   []string
		target pattern.Target
		regex  string
		names  []string
		noted  bool
	}{
		"another one":                {linked, []string{"sh", "-c", "exec train"}, pattern.CommandLine, "^python", nil, false},
		"by command line":            {linked, []string{"sh", "-c", "python a.py"}, pattern.CommandLine, "^sh -c python a.py$", nil, true},
		"by executable":              {linked, []string{"sh"}, pattern.Executable, "^/usr/bin/busybox$", nil, true},
		"by another executable":      {linked, []string{"sh"}, pattern.Executable, "^/usr/bin/sh$", nil, false},
		"by first argument":          {linked, []string{"/usr/bin/sh", "x"}, pattern.Argv0, "^/usr/bin/sh$", nil, true},
		"excluded name":              {linked, []string{"sh"}, pattern.CommandLine, "", []string{"busybox"}, false},
		"every process":              {linked, []string{"sh"}, pattern.CommandLine, "", nil, true},
		"a script by command line":   {script, []string{"app", "b"}, pattern.CommandLine, "^/usr/bin/run -x y /usr/bin/app b$", nil, true},
		"a script by its own name":   {script, []string{"app", "b"}, pattern.CommandLine, "^app b$", nil, false},
		"a script by its executable": {script, []string{"app", "b"}, pattern.Executable, "^/usr/bin/run$", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := pattern.Rules{Target: c.target, Names: c.names}
			var err error
			if c.regex != "" {
				rules.Include, err = pattern.Compile(c.regex, pattern.RE2)
				require.NoError(t, err)
			}
			match, err := rules.Encode()
			require.NoError(t, err)
			b := newBundle(t)
			require.NoError(t, os.WriteFile(filepath.Join(b.dir, "rootfs/run/prism/plan/match"), match, 0o644))
			b.config["process"] = map[string]any{"args": c.args, "cwd": "/", "env": []string{"PATH=/usr/bin"}}
			want := "static=1\n"
			if c.noted {
				want += "reason=StaticOrMusl\n"
			}
			setup := "STATIC=" + staticProgram(t) + "\n" + c.setup
			assert.Equal(t, want, b.prepare(t, setup, "grep -h -e static= -e reason run/prism/container/context run/prism/results/s*/note 2>/dev/null"))
		})
	}
}
