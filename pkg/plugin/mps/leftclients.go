package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// clientsExit is the time in which clients must exit after their containers. Later they are reported.
const clientsExit = 10 * time.Second

// leftClients reports the clients that keep MPS control daemons from being stopped when their last shares have been released.
type leftClients struct {
	events events.Recorder

	mu      sync.Mutex
	daemons map[gpu.MPSDaemonID]leftOf
}

// leftOf are the clients of a daemon.
type leftOf struct {
	// since is when the daemon could not be stopped for the first time.
	since time.Time
	// reported are the pids in the last Event.
	reported []int
}

func newLeftClients(recorder events.Recorder) *leftClients {
	return &leftClients{events: recorder, daemons: map[gpu.MPSDaemonID]leftOf{}}
}

// Undo is repeated until no client is left.
func (s reportingStep) Undo(ctx context.Context, step checkpoint.Step) error {
	err := s.Step.Undo(ctx, step)
	if wanted, invalid := claim.ParseMPS(step.Args); step.Last && invalid == nil {
		s.left.undone(wanted.Daemon, step.Target, err)
	}
	return err
}

// undone notes the result of an attempt to stop a daemon. It reports clients once, and again when they are others.
func (l *leftClients) undone(id gpu.MPSDaemonID, target gpu.UUID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clients, left := errors.AsType[*gpu.MPSClientsError](err)
	if !left {
		if err == nil {
			delete(l.daemons, id)
		}
		return
	}
	known := l.daemons[id]
	if known.since.IsZero() {
		known.since = time.Now()
	}
	if time.Since(known.since) >= clientsExit && !slices.Equal(clients.PIDs, known.reported) {
		known.reported = clients.PIDs
		l.events.Warn(events.MPSClientsLeft, events.ActionReconcile, fmt.Sprintf("The last MPS share of GPU %s is released, and processes are still connected "+
			"to its MPS control daemon %s, with the pids %v on the host: new claims do not get the GPU until they have exited", target, id, clients.PIDs))
	}
	l.daemons[id] = known
}
