package exporter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestNow_CommandsOfEarlierRounds_Counted: the bound for command names of a container applies across rounds.
func TestNow_CommandsOfEarlierRounds_Counted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &config.Exporter{})
	f.allocations.list = &metrics.Allocations{Generation: 1, List: []metrics.Allocation{{
		ClaimUID: "uid-1", ShareID: "share", GPU: "GPU-1", Containers: []metrics.Container{{Pod: "notebook", Name: "main", ID: "id"}},
		Options: gpu.MetricsOptions{PerProcess: true},
	}}}
	names := map[string]bool{}
	for i := range uint64(100) {
		command := fmt.Sprint("cell", i)
		f.sampler.snapshot.Store(&metrics.Snapshot{Generation: i + 1, GPUs: []*metrics.GPU{{
			Identity: metrics.Identity{UUID: "GPU-1"}, Up: true, At: time.Unix(1, 0), Processes: []metrics.Process{
				{PID: 1, ProcessIdentity: metrics.ProcessIdentity{Start: 1, Command: command, ContainerID: "id"}, MemoryBytes: 1},
			},
		}}})
		if strings.Contains(string(f.now().append(nil, nativeText)), `command="`+command+`"`) {
			names[command] = true
		}
	}
	assert.Len(t, names, 32)
}
