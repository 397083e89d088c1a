package tool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ConfineCommand {
		fmt.Fprintln(os.Stderr, Confine(os.Args[2:]))
		os.Exit(99)
	}
	if len(os.Args) > 1 && os.Args[1] == ContainCommand {
		if err := Contain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == importAll {
		if err := importWaiting(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// image returns a fake installation of Nsight Systems, whose nsys and importer are scripts.
func image(t *testing.T, version, importer string) Source {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for the importer's user")
	}
	dir, err := os.MkdirTemp("", "image-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	script := func(path, text string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, writeProgram(path, []byte("#!/bin/sh\n"+text+"\n")))
	}
	script("target-linux-x64/nsys", `case "$*" in
--version) echo "NVIDIA Nsight Systems version `+version+`.1-df9881f";;
"profile --help") printf '\t-t, --trace=\n\t   Possible values are %s.\n\t--kill=\n' "'cuda', 'osrt'";;
"launch --help") printf '\t-t, --trace=\n\t   Possible values are %s.\n\t--wait=\n' "'osrt'";;
"start --help") printf '\t-s, --sample=\n\t(Deprecated) --later=\n';;
esac`)
	script("target-linux-x64/lib/libtool.so", "")
	script("host-linux-x64/QdstrmImporter", importer)
	return Source{Version: version, Path: dir}
}

// copies is an importer that copies its input to the report, and appends to the input, as the real one does.
const copies = `cat "$2" > "$4"; echo appended >> "$2"`

func TestInstall_Image_ManifestAndFiles(t *testing.T) {
	t.Parallel()
	s, dir := image(t, "2025.5", copies), filepath.Join(t.TempDir(), "tools")
	require.NoError(t, os.Symlink("libtool.so", filepath.Join(s.Path, "target-linux-x64/lib/libtool.so.1")))
	require.NoError(t, os.Chmod(filepath.Join(s.Path, "target-linux-x64/lib/libtool.so"), 0o4755|os.ModeSetuid))
	got, err := s.Install(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "2025.5-"+got.Digest[:12]), got.Dir)
	assert.Equal(t, "target-linux-x64/nsys", got.Nsys)
	assert.Equal(t, []string{"--kill", "--trace", "--trace=cuda", "--trace=osrt"}, got.Switches)
	assert.Equal(t, []string{"--trace", "--trace=osrt", "--wait"}, got.Launch)
	assert.Equal(t, []string{"--sample"}, got.Start)
	assert.Empty(t, got.Manual)
	assert.Len(t, got.Files, 4, "with the importer, a script that names no library")
	assert.True(t, got.Proven.IsZero())
	info, err := os.Stat(filepath.Join(got.Dir, "target-linux-x64/lib/libtool.so.1"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o555), info.Mode(), "without set-user-ID")

	got.Proven = time.Now().UTC()
	require.NoError(t, got.Write(got.Dir))
	again, err := s.Install(t.Context(), dir)
	require.NoError(t, err)
	assert.False(t, again.Proven.IsZero(), "what is there stays as it is")
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing unfinished is left")
}

// TestForeign_LibraryOfTheSystem_NamedUnlessBeside: containers may lack libraries of the image's distribution.
func TestForeign_LibraryOfTheSystem_NamedUnlessBeside(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "nsys")
	content, err := os.ReadFile("/bin/ls")
	require.NoError(t, err)
	require.NoError(t, writeProgram(program, content))
	all := needed(program)
	assert.Subset(t, all, []string{"libc.so.6"})
	left := foreign(program)
	assert.NotContains(t, left, "libc.so.6")
	assert.Len(t, left, len(all)-1, "of %v", all)
	for _, library := range left {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(program), library), nil, 0o600))
	}
	assert.Empty(t, foreign(program))
	assert.Empty(t, foreign("/etc/passwd"), "no program")
}

// TestInstall_Killed_NextOneFinishes: an interrupted installation is ignored, and the next one replaces it.
func TestInstall_Killed_NextOneFinishes(t *testing.T) {
	t.Parallel()
	s, dir := image(t, "2025.5", copies), filepath.Join(t.TempDir(), "tools")
	unfinished := filepath.Join(dir, manifest.Unfinished+"new-2025.5", "target-linux-x64")
	require.NoError(t, os.MkdirAll(unfinished, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(unfinished, "nsys"), []byte("half"), 0o644))
	all, err := manifest.List(dir)
	require.NoError(t, err)
	assert.Empty(t, all)
	got, err := s.Install(t.Context(), dir)
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(got.Dir, got.Nsys))
	require.NoError(t, err)
	assert.NotEqual(t, "half", string(raw))
}

func TestInstall_BadImages_RefusedBySentence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, s *Source)
		want   string
	}{
		"wrong path": {func(_ *testing.T, s *Source) { s.Path += "/opt" }, "set profiler.tools[].path to the installation directory of Nsight Systems"},
		"another version": {
			func(_ *testing.T, s *Source) { s.Version = "2024.1" }, `version mismatch: the image contains Nsight Systems "2025.5.1", profiler.tools[].version is 2024.1`,
		},
		"link out of it": {func(t *testing.T, s *Source) {
			t.Helper()
			require.NoError(t, os.Symlink("../../host-linux-x64", filepath.Join(s.Path, "target-linux-x64/lib/x")))
		}, "points outside the tool's directory, to ../../host-linux-x64"},
		"absolute link": {func(t *testing.T, s *Source) {
			t.Helper()
			require.NoError(t, os.Symlink("/etc/shadow", filepath.Join(s.Path, "target-linux-x64/lib/x")))
		}, "points outside the tool's directory, to /etc/shadow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := image(t, "2025.5", copies), filepath.Join(t.TempDir(), "tools")
			c.change(t, &s)
			_, err := s.Install(t.Context(), dir)
			require.ErrorContains(t, err, c.want)
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, names)
		})
	}
}

// importerOf returns the importer of that image.
func importerOf(t *testing.T, s Source) Importer {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	// The importer's user executes it, and owns the contents of the work directory.
	work, err := os.MkdirTemp("", "work-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	require.NoError(t, os.Chmod(work, 0o755))
	program := filepath.Join(work, "program")
	require.NoError(t, copyProgram(self, program))
	return Importer{Source: s, Self: program, Work: work, Memory: 4 << 30, Deadline: 10 * time.Minute}
}

func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeProgram(to, content)
}

// writeProgram writes an executable file. A process that another test starts in the meantime could inherit it open for writing.
func writeProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}

// TestImport_RawFile_StaysAsItIs: the importer appends to its input, and another try needs the original recording.
func TestImport_RawFile_StaysAsItIs(t *testing.T) {
	t.Parallel()
	i, dir := importerOf(t, image(t, "1", copies)), t.TempDir()
	raw, report := filepath.Join(dir, "a.qdstrm"), filepath.Join(dir, "a.nsys-rep")
	require.NoError(t, os.WriteFile(raw, []byte("recorded"), 0o600))
	require.NoError(t, i.Import(t.Context(), raw, report))
	for _, path := range []string{raw, report} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "recorded", string(content), path)
	}
}

// TestImport_Importer_HasNoRights: no user of the node, no capability, no network, with limits, and without this program's environment.
func TestImport_Importer_HasNoRights(t *testing.T) {
	t.Setenv("SECRET", "s")
	i, dir := importerOf(t, image(t, "1", `{ id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; cat /proc/net/route | wc -l; env | grep -c SECRET; ulimit -d; ulimit -s; ulimit -c; } > "$4"`)), t.TempDir()
	raw, report := filepath.Join(dir, "a.qdstrm"), filepath.Join(dir, "a.nsys-rep")
	require.NoError(t, os.WriteFile(raw, []byte("recorded"), 0o600))
	require.NoError(t, i.Import(t.Context(), raw, report))
	content, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Equal(t, "65534\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n0\n0\n4194304\n2048\n0\n", string(content))
}

// TestImport_Importer_HasOwnNamespaces: it cannot reach processes or memory of others.
func TestImport_Importer_HasOwnNamespaces(t *testing.T) {
	t.Parallel()
	namespaces := []string{"/proc/self/ns/ipc", "/proc/self/ns/net", "/proc/self/ns/pid"}
	i, dir := importerOf(t, image(t, "1", "readlink "+strings.Join(namespaces, " ")+` > "$4"`)), t.TempDir()
	raw, report := filepath.Join(dir, "a.qdstrm"), filepath.Join(dir, "a.nsys-rep")
	require.NoError(t, os.WriteFile(raw, []byte("recorded"), 0o600))
	require.NoError(t, i.Import(t.Context(), raw, report))
	content, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Len(t, strings.Fields(string(content)), len(namespaces))
	for _, path := range namespaces {
		own, err := os.Readlink(path)
		require.NoError(t, err)
		assert.NotContains(t, string(content), own)
	}
}

// TestClean_EndedImports_Removed: they contain copies of recordings, and the directory survives the container.
func TestClean_EndedImports_Removed(t *testing.T) {
	t.Parallel()
	i := Importer{Work: t.TempDir()}
	own, err := i.Own()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(own, workPrefix+"1"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(own, workPrefix+"1", "report.qdstrm"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(i.Work, provenFile), nil, 0o600))
	require.NoError(t, i.Clean())
	left, err := filepath.Glob(filepath.Join(i.Work, "*", "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.FileExists(t, filepath.Join(i.Work, provenFile))
}

func TestImport_BadImporters_ErrorAndNoReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"fails":        {`echo "Processing [0%"; echo "Import Failed: no events" >&2; exit 2`, "QdstrmImporter: exit status 2: Processing [0% | Import Failed: no events"},
		"no report":    {"true", "the importer wrote no report"},
		"empty report": {`: > "$4"`, "must be a regular file of 1 to"},
		"link":         {`ln -s /etc/shadow "$4"`, "the importer wrote no report"},
		"pipe":         {`mkfifo "$4"`, "must be a regular file"},
		"too much":     {`head -c 80000000 /dev/zero > "$4"`, "QdstrmImporter: "},
		"hangs":        {`sleep 1000 & sleep 1000`, "took longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, dir := importerOf(t, image(t, "1", c.script)), t.TempDir()
			if name == "hangs" {
				i.Deadline = 100 * time.Millisecond
			}
			raw := filepath.Join(dir, "a.qdstrm")
			require.NoError(t, os.WriteFile(raw, []byte("recorded"), 0o600))
			require.ErrorContains(t, i.Import(t.Context(), raw, filepath.Join(dir, "a.nsys-rep")), c.want)
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, names, 1, "the raw file alone")
			left, err := filepath.Glob(filepath.Join(i.Work, ownFolder, "import-*"))
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// TestSweep_OldBuilds_RemovedUnlessMounted: by a CDI spec: a restarted container needs the mounts of its spec.
func TestSweep_OldBuilds_RemovedUnlessMounted(t *testing.T) {
	t.Parallel()
	dir, specs := t.TempDir(), t.TempDir()
	install := func(version, name string) manifest.Installed {
		m := manifest.New(version)
		m.Nsys, m.Proven = "target-linux-x64/nsys", time.Now()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		require.NoError(t, m.Write(path))
		return manifest.Installed{Manifest: m, Dir: path}
	}
	keep := install("1", "1-new")
	for version, name := range map[string]string{"1": "1-old", "2": "2-other", "3": "3-gone", "4": "4-gone-mounted"} {
		install(version, name)
	}
	spec := fmt.Sprintf(`{"mounts":[{"hostPath":"%s/target-linux-x64"}]}`, filepath.Join(dir, "4-gone-mounted"))
	require.NoError(t, os.WriteFile(filepath.Join(specs, "a.json"), []byte(spec), 0o600))
	require.NoError(t, Sweep(dir, keep, []string{"1", "2"}, []string{specs}))
	there, err := manifest.List(dir)
	require.NoError(t, err)
	chosen := map[string]bool{}
	for _, one := range there {
		chosen[filepath.Base(one.Dir)] = !one.Proven.IsZero()
	}
	assert.Equal(t, map[string]bool{"1-new": true, "1-old": false, "2-other": true, "3-gone": false, "4-gone-mounted": true}, chosen,
		"a claim that is being prepared may have chosen one")
	require.NoError(t, Sweep(dir, keep, []string{"1", "2"}, []string{specs}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range left {
		names = append(names, entry.Name())
	}
	assert.Equal(t, []string{"1-new", "2-other", "4-gone-mounted"}, names)
}

func TestPlace_Programs_Executable(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	for _, name := range placed {
		require.NoError(t, os.WriteFile(filepath.Join(from, name), []byte(name), 0o755))
	}
	require.NoError(t, Place(from, to))
	require.NoError(t, Place(from, to), "again, after a restart")
	for _, name := range placed {
		info, err := os.Stat(filepath.Join(to, name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode())
	}
	require.ErrorContains(t, Place(t.TempDir(), to), "placing prism-tool in ")
}
