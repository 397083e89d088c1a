package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/runplan"
)

// installations are possible directories of Nsight Systems: from NVIDIA's packages, in a CUDA toolkit, and from Debian's packages.
var installations = []string{
	"/opt/nvidia/nsight-systems*/*", "/usr/local/cuda*/nsight-systems-*", "/usr/local/cuda*/NsightSystems*", "/usr/lib/nsight-systems",
}

// installed returns the directory of the latest installation of Nsight Systems on this machine.
func installed(t *testing.T) string {
	t.Helper()
	for _, pattern := range installations {
		found, err := filepath.Glob(filepath.Join(pattern, "target-linux-x64", "nsys"))
		require.NoError(t, err)
		if len(found) > 0 {
			return filepath.Dir(filepath.Dir(slices.Max(found)))
		}
	}
	t.Skipf("this machine has no Nsight Systems in %s", strings.Join(installations, ", "))
	return ""
}

// TestNsys_GPU_KernelsInReport is a test of `make test-gpu`: a report contains the kernels of a process. It changes no setting of the GPU.
func TestNsys_GPU_KernelsInReport(t *testing.T) {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err != nil {
		t.Skip("this machine has no NVIDIA kernel driver")
	}
	tool := installed(t)
	c := newContainer(t, func(p *runplan.Plan) {
		p.Switches = []string{"--trace", "cuda", "--sample", "none", "--cpuctxsw", "none", "--kill", "none", "--wait", "primary"}
	})
	var err error
	c.Tool, err = filepath.EvalSymlinks(filepath.Join(tool, "target-linux-x64"))
	require.NoError(t, err)
	program := filepath.Join(c.Work, "profiled-kernels")
	does(t, "cc", "-O2", "-Wall", "-o", program, "testdata/kernels.c", "-ldl")
	code, output := c.run(t, "/run/work/profiled-kernels", "3")
	require.Zero(t, code, output)
	assert.Equal(t, "launched 3\n", output)
	recorded(t, c)

	raw, err := filepath.Glob(filepath.Join(c.Results, "s*", "report.qdstrm"))
	require.NoError(t, err)
	require.Len(t, raw, 1)
	report, database := filepath.Join(c.Work, "kernels.nsys-rep"), filepath.Join(c.Work, "kernels.sqlite")
	does(t, filepath.Join(tool, "host-linux-x64/QdstrmImporter"), "-i", raw[0], "-o", report)
	does(t, filepath.Join(c.Tool, "nsys"), "export", "--type", "sqlite", "--output", database, report)
	kernels := does(t, sqlite(t, tool), database,
		"select s.value, count(*) from CUPTI_ACTIVITY_KIND_KERNEL k join StringIds s on s.id = k.shortName group by 1")
	t.Logf("%s in %s", strings.TrimSpace(kernels), tool)
	assert.Equal(t, "prism_kernel|3\n", kernels)
}

// sqlite returns the program of Nsight Systems that reads databases.
func sqlite(t *testing.T, tool string) string {
	t.Helper()
	for _, part := range []string{"host-linux-x64", "target-linux-x64"} {
		path := filepath.Join(tool, part, "sqlite3")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skipf("%s has no sqlite3", tool)
	return ""
}

// does runs a program, and returns its output.
func does(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(args, " "), output)
	return string(output)
}
