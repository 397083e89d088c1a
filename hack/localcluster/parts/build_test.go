package parts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// fakeGo records its calls, and builds empty programs.
const fakeGo = `#!/bin/sh
echo "$*" >>"$FAKE_GO"
[ "$1" = build ] || exit 0
while [ "$1" != -o ]; do shift; done
mkdir -p "$2" && : >"$2/$(basename "$3")"
`

// newCache returns an empty cache that uses the script as go command, and the file in which its calls are recorded.
func newCache(t *testing.T, script string) (cache Cache, calls string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	calls = filepath.Join(dir, "calls")
	t.Setenv("FAKE_GO", calls)
	return Cache{Dir: filepath.Join(dir, "cache")}, calls
}

var twoParts = []Recipe{
	{Name: "long", Version: "1.0.0", Module: "x.invalid/long", Packages: []string{"cmd/long"}, Tags: []string{"a", "b"}},
	{Name: "short", Version: "2.0.0", Module: "x.invalid/short", Packages: []string{"cmd/short"}},
}

func TestBuild_TwoParts_ShortFirstLongDownloaded(t *testing.T) {
	cache, calls := newCache(t, fakeGo)
	var out bytes.Buffer
	require.NoError(t, build(t.Context(), cache, twoParts, report.New(&out)))
	assert.Regexp(t, `(?s)building 2 parts.*building short 2.0.0 \(1 of 2, about .*building long 1.0.0 \(2 of 2, about `, out.String())
	for _, r := range twoParts {
		assert.FileExists(t, filepath.Join(cache.Part(r), r.Name))
	}
	text, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Regexp(t, `(?s)build [^\n]*x.invalid/short/cmd/short\n.*build [^\n]*x.invalid/long/cmd/long\n`, string(text))
	left, err := filepath.Glob(filepath.Join(cache.Dir, "build", "*"))
	require.NoError(t, err)
	assert.Empty(t, left, "modules of builds and downloads are removed")
}

func TestFetch_PartsMissing_ListedInOrder(t *testing.T) {
	cache, calls := newCache(t, fakeGo)
	require.NoError(t, os.MkdirAll(cache.Part(twoParts[1]), 0o755))
	other := twoParts[1]
	other.Version = "3.0.0"
	unlock, err := cache.lock("fetch-" + other.Key())
	require.NoError(t, err)
	defer unlock()
	require.NoError(t, Fetch(t.Context(), cache, append([]Recipe{other}, twoParts...)))
	text, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Equal(t, "list -mod=mod -deps -f {{/* none */}} -tags a,b x.invalid/long/cmd/long\n", string(text),
		"neither what is built nor what another process downloads")
}

// TestBuild_EarlierRunKilled_Passes: folders of a killed build are neither used nor kept.
func TestBuild_EarlierRunKilled_Passes(t *testing.T) {
	cache, _ := newCache(t, fakeGo)
	half := []string{
		filepath.Join(cache.Dir, "parts", ".new-"+twoParts[0].Key(), "half"),
		filepath.Join(cache.Dir, "build", twoParts[0].Key()+"-123", "go.mod"),
		filepath.Join(cache.Dir, "build", "fetch-"+twoParts[0].Key()+"-123", "go.mod"),
		filepath.Join(cache.Dir, "log", twoParts[0].Key()+".log"),
		filepath.Join(cache.Dir, "durations", twoParts[0].Name),
	}
	for _, file := range half {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	require.NoError(t, Fetch(t.Context(), cache, twoParts))
	require.NoError(t, build(t.Context(), cache, twoParts, report.New(&bytes.Buffer{})))
	for _, file := range half[:3] {
		assert.NoFileExists(t, file)
	}
	entries, err := os.ReadDir(cache.Part(twoParts[0]))
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// TestBuild_ProcessKilled_CompilerEndsNextRunPasses kills a process in the middle of a build.
func TestBuild_ProcessKilled_CompilerEndsNextRunPasses(t *testing.T) {
	if dir := os.Getenv("BUILD_AND_BE_KILLED"); dir != "" {
		_ = build(context.Background(), Cache{Dir: dir}, twoParts, report.New(os.Stderr))
		return
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the command is tied to the process on Linux only")
	}
	cache, calls := newCache(t, "#!/bin/sh\n[ \"$1\" = list ] || echo $$ >>\"$FAKE_GO\"\nexec sleep 1000\n")
	killed := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	killed.Env = append(os.Environ(), "BUILD_AND_BE_KILLED="+cache.Dir)
	require.NoError(t, killed.Start())
	var pid string
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(calls)
		pid = strings.TrimSpace(string(text))
		return strings.HasSuffix(string(text), "\n")
	}, time.Minute, 10*time.Millisecond, "no build began")
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	assert.Eventually(t, func() bool { return !runs(pid) }, time.Minute, 10*time.Millisecond, "the compiler runs on")

	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(calls), "go"), []byte(fakeGo), 0o755))
	require.NoError(t, build(t.Context(), cache, twoParts, report.New(&bytes.Buffer{})))
	left, err := filepath.Glob(filepath.Join(cache.Dir, "build", "short-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func runs(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !regexp.MustCompile(`\) [ZX] `).Match(text)
}

func TestExpect_BuiltBefore_LastTimeSaid(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	kubernetes, runc := recipe(t, "kubernetes"), recipe(t, "runc")
	assert.Equal(t, fmt.Sprintf("about %s on two processors", human(firstBuilds["kubernetes"])), cache.expect(kubernetes))
	cache.recordBuild(kubernetes, 8*time.Minute+20*time.Second)
	assert.Equal(t, "8 min the last time", cache.expect(kubernetes))
	assert.Contains(t, cache.expect(kubernetes, runc), "about ")
	cache.recordBuild(runc, 21*time.Second)
	assert.Equal(t, "21 s the last time", cache.expect(runc))
	require.NoError(t, os.WriteFile(cache.durationFile(runc), []byte("half"), 0o644))
	assert.Contains(t, cache.expect(runc), "on two processors")
}

// TestFirstBuilds_EveryPart_Known: an estimate exists for each part on a machine without earlier builds.
func TestFirstBuilds_EveryPart_Known(t *testing.T) {
	known := map[string]bool{}
	for _, r := range append(Table(KubernetesVersion), Extras()...) {
		known[r.Name] = true
		assert.NotZero(t, firstBuilds[r.Name], r.Name)
	}
	assert.Len(t, firstBuilds, len(known))
}
