package mps

import (
	"fmt"
	"sync/atomic"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
)

// Counts are the values of a process's metrics.
type Counts struct {
	restarts, limitsChanged, failures atomic.Int64
}

// Restarts counts the control daemons that had exited and were started again.
func (c *Counts) Restarts() int64 { return c.restarts.Load() }

// LimitsChanged counts how often limits of a control daemon were changed by others and set again.
func (c *Counts) LimitsChanged() int64 { return c.limitsChanged.Load() }

// Failures counts the attempts to keep shared devices usable that failed.
func (c *Counts) Failures() int64 { return c.failures.Load() }

// enforcement is how the memory of MPS clients is limited: a client that changes its environment escapes.
const enforcement = "cooperative"

// Status returns the limits of the share, and the known facts about its daemon.
func (s Step) Status(step checkpoint.Step) map[string]any {
	wanted, err := claim.ParseMPS(step.Args)
	if err != nil {
		return nil
	}
	mps := map[string]any{"daemon": string(wanted.Daemon)}
	if wanted.MemoryMiB > 0 {
		mps["memory"] = fmt.Sprintf("%dMi", wanted.MemoryMiB)
	}
	if wanted.ActiveThreadPercentage > 0 {
		mps["activeThreadPercentage"] = wanted.ActiveThreadPercentage
	}
	if d, known := s.Watcher.Daemon(wanted.Daemon); known {
		mps["multiUser"] = d.MultiUser
	}
	return map[string]any{"mps": mps, "memoryEnforcement": enforcement}
}
