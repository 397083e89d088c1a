package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// pageInterval is the time between two pages of the cluster's claims that a node reads. The cause is often the same for all nodes: an edit
// of their configuration, the end of a job that ran on all of them, an API server that is back. So each node reads in separate slots. For
// any number of reading nodes and claims, all nodes together read at most nodes divided by pageInterval: 200 pages a second for 1,000
// nodes.
const pageInterval = 5 * time.Second

// pageSlot returns when a node may read a page, the first time after now: a moment in every pageInterval that depends on the node's name.
func pageSlot(node string, now time.Time) time.Time {
	since := uint64(now.Add(-phase(node, pageInterval)).UnixNano()) % uint64(pageInterval)
	return now.Add(pageInterval - time.Duration(since))
}

// phase is the part of a time after which a node does the work that all nodes do: 0 or more, and less than all of it.
func phase(node string, of time.Duration) time.Duration {
	sum := sha256.Sum256([]byte(node))
	return time.Duration(binary.BigEndian.Uint16(sum[:2])) * of / (1 << 16)
}
