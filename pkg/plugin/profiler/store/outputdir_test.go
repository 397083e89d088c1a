package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestStays_PathOfANote_InTheClaimsFolder: the container writes the note, and a download of the report reads its path.
func TestStays_PathOfANote_InTheClaimsFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dir, file string
		want      bool
	}{
		{"/work", "/work/r.nsys-rep", true},
		{"/work", "/work/deeper/r.nsys-rep", false},
		{"/work", "/worker/r.nsys-rep", false},
		{"/work", "/etc/shadow", false},
		{"/work", "/work/", false},
		{"/work", "work/r.nsys-rep", false},
		{"/work", "/other/work/r.nsys-rep", false},
		{"/w.rk", "/work/r.nsys-rep", false},
		{"/tmp/a-%{POD_FULLNAME}/{RANK}", "/tmp/a-train-0/7/r.nsys-rep", true},
		{"/tmp/a-%{POD_FULLNAME}/{RANK}", "/tmp/a-//r.nsys-rep", true}, // both are empty
		{"/tmp/a-%{POD_FULLNAME}/{RANK}", "/tmp/a-train-0/r.nsys-rep", false},
		{"/tmp/a-%{POD_FULLNAME}/{RANK}", "/tmp/a-x/../r.nsys-rep", false},
		{"/tmp/{POD}", "/tmp/../r.nsys-rep", false},
		{"", "/anywhere/r.nsys-rep", true},
		{"", "/anywhere/../r.nsys-rep", false},
		{"", "r.nsys-rep", false},
		{"", "", false},
	} {
		assert.Equal(t, c.want, (&Claim{Dir: c.dir}).stays(c.file), c)
	}
}

// TestScan_PathElsewhere_Lost: the noted size of a report in a container takes no space of the node.
func TestScan_PathElsewhere_Lost(t *testing.T) {
	t.Parallel()
	for path, state := range map[string]report.State{"/work/r.nsys-rep": report.Ready, "/dev/zero.nsys-rep": report.Lost} {
		w := newWorld(t, false)
		c := claimed
		c.Dir = "/work"
		require.NoError(t, w.Prepare(c, nil))
		w.session("", nil, "size=1000000000\npath="+path+"\n"+finished)
		w.scans()
		assert.Equal(t, state, w.get().State, path)
		assert.Empty(t, w.stopped(uid))
		if state == report.Lost {
			assert.Empty(t, w.get().Path)
			assert.Zero(t, w.get().Size)
		}
	}
}
