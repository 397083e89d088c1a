package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// TestRun_Inherited_AsWithout: a process inherits the same with and without the profiler.
func TestRun_Inherited_AsWithout(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"signals, ignored and blocked": `trap "" HUP USR1 PIPE; env --ignore-signal=CHLD --block-signal=USR2 grep -hsE "^Sig(Ign|Blk):" /proc/self/status profiled; echo $?`,
		"closed files":                 `sh -c 'ls /proc/$$/fd; exit 3' profiled <&- 2>&-; echo $?`,
		"all files closed":             `sh -c 'ls /proc/$$/fd >/run/work/files; exit 3' profiled <&- >&- 2>&-; echo $?; cat /run/work/files`,
		"limits":                       `ulimit -n 64 -f 100 -c 0; sh -c 'ulimit -a' profiled`,
		"few files":                    `ulimit -n 4; sh -c 'echo ran' profiled`,
		"umask":                        `umask 0777; sh -c 'umask' profiled`,
		"folder":                       `cd /proc; sh -c 'pwd' profiled`,
		"group and session":            `sh -c 'set -- $(cat /proc/$$/stat); echo $5 $6 $7' profiled`,
		"pipes": `rm -f /run/work/closed
sh -c 'echo a; exec >&-; until [ -e /run/work/closed ]; do sleep 0.01; done; echo went on >/run/work/end' profiled | { cat; touch /run/work/closed; }
until [ -s /run/work/end ]; do sleep 0.01; done; cat /run/work/end`,
		"large output": `sh -c 'head -c 3000000 /dev/zero' profiled | wc -c`,
		"children that outlive it": `sh -c '(while [ ! -e /run/work/ended ]; do sleep 0.01; done; echo late; : >/run/work/late) & echo first' profiled
: >/run/work/ended; while [ ! -e /run/work/late ]; do sleep 0.01; done`,
		"variables":           `A="b c" D= env -u GIVEN sh -c 'env | grep -vE "^(GIVEN|LD_PRELOAD|PRISM_PROFILED|PWD|OLDPWD|_|QUADD)" | sort' profiled`,
		"exit by each signal": `for s in 1 2 3 6 8 10 14; do sh -c "ulimit -c 0; kill -$s \$\$" profiled 2>&1 | cat; done; for s in 1 2 3 6 8 10 14; do sh -c "ulimit -c 0; kill -$s \$\$" profiled 2>/dev/null; echo $?; done 2>/dev/null`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			without := newContainer(t, nil)
			without.NoLibrary = true
			wantCode, want := without.run(t, without.outer(t, script)...)
			assert.Zero(t, without.sessions(t))
			for kind, change := range kinds {
				c := newContainer(t, change)
				code, got := c.run(t, c.outer(t, script)...)
				assert.Equal(t, wantCode, code, kind)
				assert.Equal(t, withoutSession(want), withoutSession(got), kind)
				if name != "few files" {
					assert.NotZero(t, c.sessions(t))
				}
			}
		})
	}
}

// withoutSession removes text that differs from run to run.
func withoutSession(text string) string { return strings.ReplaceAll(text, "\r", "") }

// TestRun_LargeEnvironment_AsWithout: at the limits of the kernel the process runs, profiled or not.
func TestRun_LargeEnvironment_AsWithout(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string][]string{
		"one of 128 KiB": {"A=" + strings.Repeat("a", 128<<10-3)},
		"thousands":      numbered(5000, 20),
		"near the limit": numbered(25, 80<<10),
		"large ones":     numbered(14, 128<<10-10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, change := range kinds {
				c := newContainer(t, change)
				command := c.command(t, "sh", "/run/work/profiled.sh")
				c.script(t, `env | wc -c; exit 5`)
				command.Env = append(command.Env, variables...)
				output, err := command.CombinedOutput()
				require.Error(t, err)
				assert.Equal(t, 5, command.ProcessState.ExitCode(), kind+string(output))
				size, err := strconv.Atoi(strings.TrimSpace(string(output)))
				require.NoError(t, err)
				assert.Greater(t, size, len(strings.Join(variables, "\n")), kind)
			}
		})
	}
}

func numbered(count, size int) (variables []string) {
	for i := range count {
		variables = append(variables, fmt.Sprintf("V%d=%s", i, strings.Repeat("v", size)))
	}
	return variables
}

func TestRun_LargeArguments_AsWithout(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	args := c.script(t, `echo $#; exit 5`)
	for range 50000 {
		args = append(args, "argument")
	}
	code, output := c.run(t, args...)
	assert.Equal(t, 5, code)
	assert.Equal(t, "50000\n", output)
	assert.Equal(t, finished, c.one(t)["state"])
}

// TestRun_FileName_ReducedPlaceholders: no value leads out of the folder.
func TestRun_FileName_ReducedPlaceholders(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) {
		p.File = "%{HOSTILE}-{PROCESS_ID}-{CONTAINER}-%{POD_FULLNAME}-%{NONE}-{UNKNOWN}/x"
		p.Dir = "/run/work/%{DOTS}/{NAMESPACE}"
	})
	code, output := c.run(t, c.outer(t, `HOSTILE='../a b/$(c)' DOTS=.. sh -c 'exit 4' profiled; ls /run/work/__/ns`)...)
	assert.Zero(t, code)
	n := c.one(t)
	assert.Regexp(t, `^_\._a_b___c_-\d+-main-pod-a--\{UNKNOWN\}_x$`, n["file"])
	assert.Equal(t, n["file"]+".qdstrm\n", output)
	where := "/run/work/__/ns/" + n["file"]
	assert.Equal(t, where+" "+where+".qdstrm", n["path"], "the last one is what it turned out to be")
	assert.Regexp(t, `^[1-9][0-9]*$`, n["size"], "downloads are bounded by it")
	assert.Equal(t, finished, n["state"])
}

// TestRun_ReportThere_AnotherName: nsys does not overwrite the report of an earlier process, and it is not taken for the later one's.
func TestRun_ReportThere_AnotherName(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Dir, p.File = "/run/work/out", "report" })
	for range 2 {
		code, output := c.run(t, c.script(t, "exit 4")...)
		assert.Equal(t, 4, code, output)
	}
	reports, err := filepath.Glob(filepath.Join(c.Work, "out", "*"))
	require.NoError(t, err)
	var want []string
	for _, n := range c.notes(t) {
		assert.Equal(t, finished, n["state"])
		paths := strings.Fields(n["path"])
		want = append(want, filepath.Join(c.Work, "out", filepath.Base(paths[len(paths)-1])))
	}
	assert.ElementsMatch(t, want, reports)
	assert.Len(t, want, 2)
	assert.NotEqual(t, want[0], want[1])
}

// TestRun_ImportedReportEmpty_RawNoted: if nsys could not import the raw file, that file is the report.
func TestRun_ImportedReportEmpty_RawNoted(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"in its container": "/run/work/out", "in the results": ""} {
		c := newContainer(t, func(p *runplan.Plan) {
			p.Env = []string{"FAKE=empty"}
			if dir != "" {
				p.Dir, p.File = dir, "report"
			}
		})
		code, output := c.run(t, c.script(t, "exit 4")...)
		assert.Equal(t, 4, code, output)
		n := c.one(t)
		assert.Equal(t, finished, n["state"], name)
		if dir != "" {
			assert.Equal(t, "/run/work/out/report /run/work/out/report.qdstrm", n["path"])
			assert.Equal(t, "7", n["size"])
		}
	}
}

// TestRun_OtherContainer_SendsNoVariables: files that the containers of a claim share cannot change the process's environment.
func TestRun_OtherContainer_SendsNoVariables(t *testing.T) {
	t.Parallel()
	c := newContainer(t, func(p *runplan.Plan) { p.Env, p.Ready = []string{"FAKE=silent"}, time.Second })
	code, output := c.run(t, c.outer(t, `(until [ -e /run/prism/results/s*/nsys.log ]; do sleep 0.01; done
for pipe in $(find /run/prism/results -type p); do printf 'EVIL=injected\0\0' >"$pipe"; done) &
sh -c 'echo "a$EVIL"; exit 4' profiled; code=$?; ls /run/prism/container/pipes; exit $code`)...)
	assert.Equal(t, 4, code)
	assert.Equal(t, "a\n", output)
}

// TestRun_LargestPlan_Read: prism-run can read every plan that the plugin encodes.
func TestRun_LargestPlan_Read(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	path := filepath.Join(c.Plan, "run")
	plan, err := os.ReadFile(path)
	require.NoError(t, err)
	plan = append(plan, "unknown="+strings.Repeat("x", 1<<20-len(plan)-len("unknown=")-1)+"\x00"...)
	require.Len(t, plan, 1<<20)
	require.NoError(t, os.WriteFile(path, plan, 0o644))
	code, output := c.run(t, c.script(t, "exit 4")...)
	assert.Equal(t, 4, code, output)
	assert.Equal(t, finished, c.one(t)["state"])
}

// TestRun_InvalidPlan_ProcessRuns: for any content of the plugin's file.
func TestRun_InvalidPlan_ProcessRuns(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]string{
		"empty": "", "another version": "version=2\x00tool=/x\x00", "no end": "version=1\x00tool=/x", "no tool": "version=1\x00",
		"a number": "version=1\x00tool=/x\x00maxSessions=1x\x00", "a large number": "version=1\x00tool=/x\x00maxSessions=1000\x00",
		"too large": "version=1\x00tool=/x\x00file=" + strings.Repeat("x", 1<<20) + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, nil)
			require.NoError(t, os.WriteFile(filepath.Join(c.Plan, "run"), []byte(plan), 0o600))
			code, output := c.run(t, c.script(t, "echo ran; exit 5")...)
			assert.Equal(t, 5, code)
			assert.Equal(t, "ran\n", output)
			assert.Equal(t, "FellBackUnprofiled", c.one(t)["reason"])
		})
	}
}

// TestRun_ResultsNotWritable_ProcessRuns: without a note, because no place is writable.
func TestRun_ResultsNotWritable_ProcessRuns(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	code, output := c.run(t, c.outer(t, "mount -o remount,bind,ro /run/prism/results; sh -c 'echo $GIVEN ran; exit 5' profiled")...)
	assert.Equal(t, 5, code)
	assert.Equal(t, "ran\n", output)
}

// TestRun_StaticProgram_Untouched: the loader loads no library into it.
func TestRun_StaticProgram_Untouched(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	code, output := c.run(t, "/run/prism/programs/prism-run", "profiled")
	assert.Equal(t, 2, code)
	assert.Equal(t, "prism-run: usage: prism-run EXECUTABLE ARGUMENT0 [ARGUMENT...]\n", output)
	assert.Empty(t, c.notes(t))
}

// TestInject_MoreRightsThanParent_Untouched: a program that runs as the user or group of its file is executed unchanged.
func TestInject_MoreRightsThanParent_Untouched(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("needs setpriv")
	}
	for mode, given := range map[string]string{"0755": "by-nsys\n", "4755": "", "2755": ""} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, nil)
			code, output := c.run(t, c.outer(t, `cp /usr/bin/printenv /tmp/program; chmod `+mode+` /tmp/program
setpriv --reuid=1234 --regid=1234 --clear-groups /tmp/program GIVEN profiled; true`)...)
			assert.Zero(t, code)
			assert.Equal(t, given, output)
			assert.Equal(t, given == "", len(c.notes(t)) == 0)
		})
	}
}

// TestInject_Loader_Untouched: if the loader itself is executed, its file and its arguments do not belong together.
func TestInject_Loader_Untouched(t *testing.T) {
	t.Parallel()
	c := newContainer(t, nil)
	loader, err := filepath.Glob("/lib64/ld-linux-*")
	require.NoError(t, err)
	if len(loader) == 0 {
		t.Skip("needs a loader in /lib64")
	}
	code, output := c.run(t, c.outer(t, loader[0]+` /bin/sh -c 'echo $GIVEN ran; exit 5' profiled`)...)
	assert.Equal(t, 5, code)
	assert.Equal(t, "ran\n", output)
}
