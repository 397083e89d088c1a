package store

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// ranged creates a session with a file for each of these ranges, whose content is its number.
func (w *world) ranged(suffix string, numbers ...int) {
	dir := w.session("", nil, finished)
	for _, number := range numbers {
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, "report."+strconv.Itoa(number)+suffix), []byte(strconv.Itoa(number)), 0o600))
	}
}

// listed returns the reports by id, with state and file name.
func (w *world) listed() map[string]string {
	all := map[string]string{}
	for _, r := range w.List("", "") {
		all[r.ID] = string(r.State) + " " + r.File
	}
	return all
}

// content returns the content of a report for downloads.
func (w *world) content(id string) string {
	f, _, err := w.Content(uid, id)
	require.NoError(w.t, err)
	defer f.Close()
	all, err := io.ReadAll(f)
	require.NoError(w.t, err)
	return string(all)
}

// inboxIsEmpty checks that no session is left.
func (w *world) inboxIsEmpty() {
	there, err := os.ReadDir(filepath.Join(w.dir, uid, inboxDir))
	require.NoError(w.t, err)
	require.Empty(w.t, there)
}

// TestScan_Ranges_ReportEach: there is a report for each range, which can be downloaded and deleted separately.
func TestScan_Ranges_ReportEach(t *testing.T) {
	t.Parallel()
	require.Equal(t, v1alpha1.MaxRanges, MaxRanges)
	w := newWorld(t, false)
	w.ranged(readySuffix, 1, 2, 3)
	w.Scan()
	assert.Equal(t, map[string]string{
		id: "Ready a_.._b_c.1.nsys-rep", id + "-2": "Ready a_.._b_c.2.nsys-rep", id + "-3": "Ready a_.._b_c.3.nsys-rep",
	}, w.listed())
	w.inboxIsEmpty()
	for number, id := range map[string]string{"1": id, "2": id + "-2", "3": id + "-3"} {
		assert.Equal(t, number, w.content(id))
	}
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Delete(uid, id+"-2", report.Deletion{}))
	require.NoError(t, w.Delete(uid, id, report.Deletion{}))
	w.Scan()
	assert.Equal(t, []string{id + "-3"}, slices.Collect(maps.Keys(w.listed())))
	left, err := os.ReadDir(filepath.Join(w.dir, uid, reportsDir))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

// TestScan_RangesImported_ReportEach: the importer gets the raw file of each.
func TestScan_RangesImported_ReportEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.ranged(rawSuffix, 1, 2, 16)
	w.Scan()
	spool := filepath.Join(w.dir, uid, spoolDir)
	for id, made := range map[string]string{id: readySuffix, id + "-2": failedSuffix, id + "-16": readySuffix} {
		require.FileExists(t, filepath.Join(spool, id+rawSuffix))
		require.NoError(t, os.WriteFile(filepath.Join(spool, id+made), []byte("made of "+id), 0o600))
	}
	w.Scan()
	assert.Equal(t, map[string]string{
		id: "Ready a_.._b_c.1.nsys-rep", id + "-2": "Raw a_.._b_c.2.qdstrm", id + "-16": "Ready a_.._b_c.16.nsys-rep",
	}, w.listed())
	assert.Equal(t, "made of "+id+"-16", w.content(id+"-16"))
	assert.Equal(t, "2", w.content(id+"-2"))
}

// TestScan_RangesKilledAnywhere_NothingLostOrTwice: between the files of a process, and between them and the index.
func TestScan_RangesKilledAnywhere_NothingLostOrTwice(t *testing.T) {
	t.Parallel()
	points := 0
	for _, imports := range []bool{false, true} {
		for point, died := 0, true; died; point++ {
			w := newWorld(t, imports)
			w.ranged(rawSuffix, 1, 2, 3)
			left := point
			w.reopen(imports, dying{left: &left})
			w.Scan()
			died = left < 0
			w.reopen(imports, disk.OS{})
			w.Scan()
			state, folder := report.Raw, reportsDir
			if imports {
				state, folder = report.Importing, spoolDir
			}
			require.Len(t, w.List("", ""), 3)
			w.inboxIsEmpty()
			for number, id := range map[string]string{"1": id, "2": id + "-2", "3": id + "-3"} {
				r, err := w.Get(uid, id)
				require.NoError(t, err)
				require.Equal(t, state, r.State, "report %s at fault point %d", id, point)
				content, err := os.ReadFile(filepath.Join(w.dir, uid, folder, id+rawSuffix))
				require.NoError(t, err)
				require.Equal(t, number, string(content))
			}
			there, err := os.ReadDir(filepath.Join(w.dir, uid, folder))
			require.NoError(t, err)
			require.Len(t, there, 3, "fault point %d", point)
			points++
		}
	}
	t.Logf("%d fault points", points)
}

// broken is a disk on which one file cannot be created.
type broken struct {
	disk.OS
	name string
}

func (b broken) Create(path string, perm os.FileMode) (disk.File, error) {
	if filepath.Base(path) == b.name {
		return nil, unix.EIO
	}
	return b.OS.Create(path, perm)
}

// TestScan_RangeFails_OthersStay: reports that were taken over exist once, and cannot be deleted before the rest is taken over: they would
// reappear.
func TestScan_RangeFails_OthersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.reopen(true, broken{name: newPrefix + id + "-3"})
	w.ranged(rawSuffix, 1, 2, 3, 4)
	w.Scan()
	require.Equal(t, map[string]string{id: "Recording a_.._b_c", id + "-2": "Importing a_.._b_c.2.nsys-rep"}, w.listed())
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+"-2"+readySuffix), []byte("made"), 0o600))
	w.Scan()
	require.Equal(t, map[string]string{id: "Recording a_.._b_c", id + "-2": "Ready a_.._b_c.2.nsys-rep"}, w.listed())
	require.ErrorIs(t, w.Delete(uid, id+"-2", report.Deletion{}), ErrBusy)
	two, err := w.Get(uid, id+"-2")
	require.NoError(t, err)
	w.reopen(true, disk.OS{})
	w.Scan()
	require.Len(t, w.List("", ""), 4)
	again, err := w.Get(uid, id+"-2")
	require.NoError(t, err)
	assert.Equal(t, two, again)
	require.NoError(t, w.Delete(uid, id+"-2", report.Deletion{}))
	w.Scan()
	require.Len(t, w.List("", ""), 3)
}

// TestScan_RangeFails_OthersNotCut: neither retention, whose times the container controls, nor a full node or index removes reports that
// the next scan would take over again.
func TestScan_RangeFails_OthersNotCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content string
		cut     func(w *world)
	}{
		"retention": {"content", func(w *world) { require.NoError(w.t, w.expire(uid)) }},
		"retention without file, in another process": {"", func(w *world) { w.claims[uid].compact(w.now) }},
		"node full": {"content", func(w *world) {
			w.evict(&evictions{tally: tally{limit: 1, by: map[string]int64{claimed.Namespace: 100}}, missing: 100, of: size})
		}},
		"many Lost": {"", func(w *world) {
			w.adds(uid, claimLost, report.Lost)
			w.claims[uid].dropLost()
		}},
		"many without file": {"", func(w *world) {
			w.adds(uid, namespaceFileless, report.Lost)
			dropFileless(w.claims)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false)
			w.reopen(false, broken{name: newPrefix + id + "-3"})
			w.ranged(readySuffix, 1, 2, 3)
			second := filepath.Join(w.dir, uid, inboxDir, folder, "report.2"+readySuffix)
			require.NoError(t, os.WriteFile(second, []byte(c.content), 0o600))
			w.Scan()
			require.Equal(t, report.Recording, w.get().State)
			c.cut(w)
			_, err := w.Get(uid, id+"-2")
			require.NoError(t, err)

			w.Files = disk.OS{}
			w.Scan()
			require.True(t, w.get().State.Final())
			c.cut(w)
			_, err = w.Get(uid, id+"-2")
			require.ErrorIs(t, err, fs.ErrNotExist, "the session is over")
		})
	}
}

// TestTakeOver_BytesOfAScan_OneFile: each file waits for files of other claims, like files of several sessions.
func TestTakeOver_BytesOfAScan_OneFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.ranged(readySuffix, 1, 2, 3)
	dir, err := untrusted.Open(filepath.Join(w.dir, uid, inboxDir, folder))
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, w.sync(uid))
	for i, want := range []int{2, 3, 3} {
		copying := &copies{ctx: t.Context(), files: disk.OS{}, left: 1, lost: claimLost}
		done, err := w.takeOver(copying, dir, w.begun(claimed, id, w.now), note{}, i == 0)
		require.NoError(t, err)
		assert.Equal(t, i == 2, done)
		assert.Len(t, w.List("", ""), want)
	}
}

// TestScan_RangesBeyondLimits_Bounded: the limits of a claim apply to the sum of all ranges.
func TestScan_RangesBeyondLimits_Bounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	dir := w.session("", nil, finished)
	for number := range 100 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("report.%d.qdstrm", number)), make([]byte, claimed.MaxBytes/3), 0o600))
	}
	w.Scan()
	states, bytes := map[report.State]int{}, int64(0)
	for _, r := range w.List("", "") {
		states[r.State]++
		bytes += r.Size
		assert.True(t, r.State != report.Lost || r.Reason == reasonFull, r.Reason)
	}
	assert.Equal(t, map[report.State]int{report.Raw: 3, report.Lost: MaxRanges - 3}, states)
	assert.LessOrEqual(t, bytes, claimed.MaxBytes)
	w.inboxIsEmpty()

	// The maximum number of reports of a claim: the rest waits until one is deleted.
	w = newWorld(t, false)
	filled := w.claims[uid]
	for i := range claimReports - 2 {
		filled.Reports = append(filled.Reports, &report.Report{ID: fmt.Sprint("r", i), ClaimUID: uid, Namespace: "team", State: report.Raw, SHA256: "a"})
	}
	w.ranged(readySuffix, 1, 2, 3)
	w.Scan()
	require.Len(t, filled.Reports, claimReports)
	require.Equal(t, report.Recording, w.get().State)
	require.NoError(t, w.Delete(uid, "r0", report.Deletion{}))
	w.Scan()
	require.Len(t, filled.Reports, claimReports)
	require.Equal(t, report.Ready, w.get().State)
}

// TestScan_HostileRanges_Lost: the container can create files with any names and numbers.
func TestScan_HostileRanges_Lost(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	file := func(at string) { require.NoError(t, os.WriteFile(at, []byte("content"), 0o600)) }
	for name, c := range map[string]struct {
		files map[string]func(at string)
		want  map[string]string
	}{
		"one with a number": {map[string]func(string){"report.1.nsys-rep": file}, map[string]string{id: "Ready a_.._b_c.1.nsys-rep"}},
		"number and none":   {map[string]func(string){"report.1.nsys-rep": file, "report.nsys-rep": file}, map[string]string{id: "Ready a_.._b_c.nsys-rep"}},
		"gap":               {map[string]func(string){"report.3.nsys-rep": file, "report.9.qdstrm": file}, map[string]string{id: "Ready a_.._b_c.3.nsys-rep", id + "-9": "Raw a_.._b_c.9.qdstrm"}},
		"both kinds":        {map[string]func(string){"report.2.nsys-rep": file, "report.2.qdstrm": file}, map[string]string{id: "Ready a_.._b_c.2.nsys-rep"}},
		"no numbers":        {map[string]func(string){"report.0.nsys-rep": file, "report.-1.nsys-rep": file, "report.01.nsys-rep": file, "report.17.nsys-rep": file, "report.1e1.nsys-rep": file, "report.99999999999999999999.nsys-rep": file, "report.١.nsys-rep": file}, map[string]string{id: "Lost a_.._b_c"}},
		"links, pipes, folders": {map[string]func(string){
			"report.1.nsys-rep": func(at string) { require.NoError(t, os.Symlink(secret, at)) },
			"report.2.nsys-rep": func(at string) { require.NoError(t, unix.Mkfifo(at, 0o600)) },
			"report.3.nsys-rep": func(at string) { require.NoError(t, os.Mkdir(at, 0o700)) },
			"report.4.nsys-rep": func(at string) { require.NoError(t, os.Link(secret, at)) },
			"report.5.nsys-rep": func(at string) { require.NoError(t, os.WriteFile(at, nil, 0o600)) },
			"report.6.nsys-rep": file,
		}, map[string]string{
			id: "Lost a_.._b_c.1", id + "-2": "Lost a_.._b_c.2", id + "-3": "Lost a_.._b_c.3", id + "-4": "Lost a_.._b_c.4", id + "-5": "Lost a_.._b_c.5",
			id + "-6": "Ready a_.._b_c.6.nsys-rep",
		}},
	} {
		w := newWorld(t, false)
		dir := w.session("", nil, finished)
		for at, make := range c.files {
			make(filepath.Join(dir, at))
		}
		w.Scan()
		assert.Equal(t, c.want, w.listed(), name)
		w.inboxIsEmpty()
		require.NoError(t, os.RemoveAll(dir))
	}
}

// TestScan_RangesElsewhere_PathEach: the paths of reports that stay in their container differ from the first path only in the number.
func TestScan_RangesElsewhere_PathEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	c := claimed
	c.Dir = "/work"
	require.NoError(t, w.Prepare(c, nil))
	w.session("", nil, "path=/work/r\nsize=10\npath=/work/r.1.qdstrm\nsize.2=20\nsize.3=-1\nsize.17=5\nsize.02=7\nsize.1=8\n"+finished)
	w.Scan()
	got := map[string]string{}
	for _, r := range w.List("", "") {
		got[r.ID] = fmt.Sprint(r.State, " ", r.Path, " ", r.File, " ", r.Size)
	}
	assert.Equal(t, map[string]string{
		id:        "Raw /work/r.1.qdstrm a_.._b_c.1.qdstrm 10",
		id + "-2": "Raw /work/r.2.qdstrm a_.._b_c.2.qdstrm 20",
		id + "-3": "Raw /work/r.3.qdstrm a_.._b_c.3.qdstrm 0",
	}, got)
}

// FuzzNote_Ranges: for any note, each report gets a separate path next to the first one, and a name within limits.
func FuzzNote_Ranges(f *testing.F) {
	for _, at := range []string{"/work/r.1.qdstrm", "/work/r.qdstrm", "/work/..1.nsys-rep", "/work.2/r", "/work/.16.", "/.1.1.1", "/work/r.1/..", "/work/r.01.nsys-rep", "/work/r.17.nsys-rep"} {
		f.Add(at, strings.Repeat("name", 100), uint16(0xffff))
	}
	f.Fuzz(func(t *testing.T, at, file string, sizes uint16) {
		said := note{"path": at, "file": file}
		for number := range 16 {
			if sizes>>number&1 != 0 {
				said[sizeKey(number+1)] = "1"
			}
		}
		if !(&Claim{}).stays(at) {
			return
		}
		r := report.Report{ID: id, Path: at, File: fileName(file, id)}
		numbers := said.ranges(&r, nil)
		paths := map[string]bool{}
		for i, number := range numbers {
			of := said.ofRange(r, number)
			require.False(t, i == 0 && of.Path != at, of.Path)
			require.False(t, paths[of.Path], of.Path)
			require.Equal(t, path.Dir(at), path.Dir(of.Path))
			require.True(t, (&Claim{}).stays(of.Path), of.Path)
			require.LessOrEqual(t, len(of.File), maxFile)
			require.True(t, len(numbers) == 1 || strings.HasSuffix(of.File, rangeName(number)), of.File)
			paths[of.Path] = true
		}
	})
}
