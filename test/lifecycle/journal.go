package lifecycle

import (
	"sync"
)

// journal lists the events in a process in order: its changes of the disk, its fault points and its results.
type journal struct {
	machine *Machine
	// write stores an entry; it is called by one goroutine at a time.
	write func(change)

	mu sync.Mutex
	// cluster is the state of the API server at the last mark.
	cluster string
}

// add stores a change of the disk.
func (j *journal) add(c change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.write(c)
}

// mark stores another entry, after the state of the API server if that changed.
func (j *journal) mark(c change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, err := j.machine.clusterState()
	if err != nil {
		panic(err) // the state after a power cut would be wrong
	}
	if now != j.cluster {
		j.cluster = now
		j.write(change{Call: inCluster, Data: []byte(now)})
	}
	j.write(c)
}
