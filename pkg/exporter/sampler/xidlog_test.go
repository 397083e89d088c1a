package sampler

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// xidLines is a log that stores its lines about XIDs.
type xidLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *xidLines) options(f *fakeLibrary) Options {
	return Options{Library: f, Log: funcr.New(func(_, line string) {
		if _, xid, found := strings.Cut(line, `"GPU reported an XID" `); found {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lines = append(l.lines, xid)
		}
	}, funcr.Options{})}
}

// written are the lines since the previous call.
func (l *xidLines) written() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// storm is this number of XIDs of a GPU instance.
func storm(count int, code uint64) []fakeXID {
	list := make([]fakeXID, count)
	for i := range list {
		list[i] = fakeXID{"GPU-0", metrics.XID{Code: code, GPUInstance: 2}}
	}
	return list
}

// TestSampler_XIDStorm_OneLineAMinute: the first XID is logged at once, and the others as a number; other codes and GPUs are logged
// separately.
func TestSampler_XIDStorm_OneLineAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, log := newFake(2), &xidLines{}
		s := started(t, log.options(f))
		f.change(func() { f.xids = storm(1000, 31) })
		pass(time.Second)
		assert.Equal(t, []string{`"gpu"="GPU-0" "xid"=31 "gpuInstance"=2 "suppressed"=0`}, log.written())
		f.change(func() {
			f.xids = append(storm(500, 31), fakeXID{"GPU-0", metrics.XID{Code: 79, GPUInstance: -1}}, fakeXID{"GPU-1", metrics.XID{Code: 31, GPUInstance: -1}})
		})
		pass(time.Second)
		assert.Equal(t, []string{
			`"gpu"="GPU-0" "xid"=79 "gpuInstance"=-1 "suppressed"=0`, `"gpu"="GPU-1" "xid"=31 "gpuInstance"=-1 "suppressed"=0`,
		}, log.written(), "at once")
		pass(time.Minute)
		assert.Equal(t, []string{`"gpu"="GPU-0" "xid"=31 "gpuInstance"=2 "suppressed"=1498`}, log.written(), "when the minute is over, with no further XID")
		pass(10 * time.Minute)
		assert.Empty(t, log.written())
		xids := gpuOf(t, s, "GPU-0").XIDs
		require.Len(t, xids, 2)
		assert.EqualValues(t, 1500, xids[0].Count, "metrics have all of them")
	})
}

// TestSampler_SessionEnds_SuppressedXIDsWritten: pending lines are not lost with the session.
func TestSampler_SessionEnds_SuppressedXIDsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, log := newFake(1), &xidLines{}
		started(t, log.options(f))
		f.change(func() { f.xids = storm(3, 13) })
		pass(time.Second)
		require.Len(t, log.written(), 1)
		f.change(func() { f.gpus["GPU-0"].lostUntil = 2 })
		pass(50 * time.Second)
		assert.Equal(t, []string{`"gpu"="GPU-0" "xid"=13 "gpuInstance"=2 "suppressed"=1`}, log.written())
	})
}
