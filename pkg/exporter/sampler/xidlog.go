package sampler

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// xidLogInterval is the time between two lines about one code of a GPU. A tenant can cause codes 13 and 31 whenever its programs fail, and
// the metrics count all of them.
const xidLogInterval = time.Minute

// xidLog writes the first XID of each code of a GPU at once, and then one line for all within xidLogInterval. One code does not hide
// another.
type xidLog struct {
	log   logr.Logger
	lines map[xidKey]*xidLine
}

type xidKey struct {
	id   gpu.UUID
	code uint64
}

// xidLine is the state of the next line.
type xidLine struct {
	// at is the time of the previous line; pending counts the XIDs since then, and latest is the last of them.
	at      time.Time
	pending int
	latest  metrics.XID
}

// add adds an XID of a GPU.
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

// write writes the lines that are due, or all pending lines.
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
