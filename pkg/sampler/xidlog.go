package sampler

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
)

// xidLogInterval is the time between two lines about one code of a GPU. A tenant can provoke codes 13 and 31 as often as its programs fail,
// and the metrics have all of them.
const xidLogInterval = time.Minute

// xidLog writes the first XID of each code of a GPU at once, and then one line for all that come within xidLogInterval. One code does not
// hide another.
type xidLog struct {
	log   logr.Logger
	lines map[xidKey]*xidLine
}

type xidKey struct {
	id   gpu.UUID
	code uint64
}

// xidLine is what the next line is about.
type xidLine struct {
	// at is when the line before was written; pending counts the XIDs since then, of which latest is the latest.
	at      time.Time
	pending int
	latest  metrics.XID
}

// add adds an XID that a GPU has reported.
func (l *xidLog) add(id gpu.UUID, xid metrics.XID) {
	if l.lines == nil {
		l.lines = map[xidKey]*xidLine{}
	}
	key := xidKey{id, xid.Code}
	line := l.lines[key]
	if line == nil {
		line = &xidLine{}
		l.lines[key] = line
	}
	line.pending++
	line.latest = xid
}

// write writes the lines that are due, all where the log is to have everything.
func (l *xidLog) write(all bool) {
	now := time.Now()
	for key, line := range l.lines {
		if line.pending == 0 || !all && now.Sub(line.at) < xidLogInterval {
			continue
		}
		l.log.Info("GPU reported an XID", "gpu", key.id, "xid", key.code, "gpuInstance", line.latest.GPUInstance, "suppressed", line.pending-1)
		line.at, line.pending = now, 0
	}
}
