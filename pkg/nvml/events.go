package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

const (
	// eventSet is the target of calls for the event set, so that a wait delays no other call.
	eventSet library.Target = "the event set (health)"
	// healthEvents are the types of events that are registered, as far as a GPU supports them: with one unsupported type it registers none.
	healthEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeGpuUnavailableError |
		nvml.EventTypeGpuRecoveryAction
	registerEvents = "nvmlDeviceRegisterEvents"
)

// events is the event set of a session. NVML cannot unregister a GPU, so the set is freed and created again instead.
type events struct {
	// turn holds a token while the set is used; it guards the next fields.
	turn chan struct{}
	set  nvml.EventSet
	// watched are the handles of the registered GPUs, ids the GPUs of all handles that were registered in the set.
	watched map[gpu.UUID]nvml.Device
	ids     map[nvml.Device]gpu.UUID
	// refused are the handles of GPUs that could not be registered. They are tried again with another handle, or after they did not answer.
	refused map[gpu.UUID]nvml.Device
	// busy are the targets on which a registration hangs.
	busy []library.Target
	// missed: events may have come while there was no set.
	missed bool

	mu        sync.Mutex
	suspended int
	resumed   chan struct{} // closed while nothing suspends the events
	closed    bool
}

func newEvents() *events {
	e := &events{turn: make(chan struct{}, 1), refused: map[gpu.UUID]nvml.Device{}, resumed: make(chan struct{})}
	close(e.resumed)
	return e
}

// take waits for the exclusive use of the set; call the returned function after it.
func (e *events) take(ctx context.Context) (release func(), err error) {
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s: %w", eventSet, ctx.Err())
	}
}

// active waits until nothing suspends the events, and then for the exclusive use of the set. gpu.ErrDriverNotLoaded: the session is closed.
func (e *events) active(ctx context.Context) (release func(), err error) {
	for {
		e.mu.Lock()
		resumed := e.resumed
		e.mu.Unlock()
		select {
		case <-resumed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		release, err := e.take(ctx)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		closed, suspended := e.closed, e.suspended > 0
		e.mu.Unlock()
		if !closed && !suspended {
			return release, nil
		}
		release()
		if closed {
			return nil, fmt.Errorf("waiting for events: the session is closed: %w", gpu.ErrDriverNotLoaded)
		}
	}
}

func (e *events) suspend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.suspended++; e.suspended == 1 {
		e.resumed = make(chan struct{})
	}
}

func (e *events) resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.suspended--; e.suspended == 0 {
		close(e.resumed)
	}
}

// close makes active refuse from now on.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}

// suspendEvents frees the event set. Until resume is called there is none, so that no GPU is in use because of it. It waits for the present
// wait.
func (s *Session) suspendEvents(ctx context.Context) (resume func(), err error) {
	s.events.suspend()
	release, err := s.events.take(ctx)
	if err != nil {
		s.events.resume()
		return nil, err
	}
	defer release()
	s.freeEvents()
	return s.events.resume, nil
}

// freeEvents frees the set if there is one. A set that a hanging call uses is not freed: it exists until the library is unloaded. The caller
// holds the turn.
func (s *Session) freeEvents() {
	e := s.events
	if e.set == nil {
		return
	}
	set, used := e.set, s.gate.Blocked(eventSet) != nil
	for _, target := range e.busy {
		used = used || s.gate.Blocked(target) != nil
	}
	e.set, e.busy, e.missed = nil, nil, true
	if used {
		return
	}
	_, _ = s.onEvents(context.Background(), "nvmlEventSetFree", func() (struct{}, nvml.Return) { return struct{}{}, set.Free() })
}

// onEvents makes a call for the event set.
func (s *Session) onEvents(ctx context.Context, symbol string, fn func() (struct{}, nvml.Return)) (struct{}, error) {
	return ask(ctx, s, eventSet, symbol, fn)
}

// ensureEvents creates the set if there is none, and adds the GPUs that are not in it. A GPU with another handle than the registered one needs
// a new set. The caller holds the turn.
func (s *Session) ensureEvents(ctx context.Context) error {
	e, present := s.events, s.present()
	for id, handle := range e.watched {
		switch now, ok := present[id]; {
		case !ok: // it is registered again when it answers
			delete(e.watched, id)
		case now.device != handle:
			s.freeEvents()
		}
	}
	if e.set == nil {
		if err := s.createEvents(ctx); err != nil {
			s.noteUnwatched(present)
			return err
		}
	}
	for id, b := range present {
		if e.watched[id] != nil || e.refused[id] == b.device {
			continue
		}
		if err := s.register(ctx, id, &b); err != nil {
			return err
		}
	}
	s.noteUnwatched(present)
	return nil
}

// createEvents creates an empty set.
func (s *Session) createEvents(ctx context.Context) (err error) {
	e := s.events
	e.watched, e.ids = map[gpu.UUID]nvml.Device{}, map[nvml.Device]gpu.UUID{}
	e.set, err = ask(ctx, s, eventSet, "nvmlEventSetCreate", s.lib.EventSetCreate)
	return err
}

// register adds a GPU to the set, or notes its refusal. The error concerns the whole set.
func (s *Session) register(ctx context.Context, id gpu.UUID, b *board) error {
	e := s.events
	q := query{ctx: ctx, session: s, on: healthOf(b.facts.Index), device: b.device, limit: s.opts.Deadline}
	end, err := s.pollsOf(id).begin(ctx, q.on)
	if err != nil {
		return err
	}
	defer end()
	types, err := must(q, "nvmlDeviceGetSupportedEventTypes", q.device.GetSupportedEventTypes)
	registers := err == nil && types&healthEvents != 0
	if registers {
		set := e.set
		_, err = must(q, registerEvents, func() (struct{}, nvml.Return) {
			return struct{}{}, q.device.RegisterEvents(types&healthEvents, set)
		})
	}
	_, unsupported := errors.AsType[*gpu.UnsupportedError](err)
	switch {
	case ctx.Err() != nil, errors.Is(err, gpu.ErrDriverNotLoaded):
		return err
	case err == nil && registers:
		e.watched[id], e.ids[b.device] = b.device, id
		return nil
	}
	e.refused[id] = b.device
	if errors.Is(err, gpu.ErrTimeout) {
		e.busy = append(e.busy, q.on)
		return nil
	}
	if registers && !unsupported && !errors.Is(err, gpu.ErrLost) {
		return err // the set is in an undefined state
	}
	return nil
}

// present returns the GPUs that answer.
func (s *Session) present() map[gpu.UUID]board {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[gpu.UUID]board, len(s.boards))
	for _, b := range s.boards {
		all[b.facts.UUID] = b
	}
	return all
}

// noteUnwatched notes which GPUs have no events. Refusals of GPUs that do not answer are dropped: a GPU that returns is tried again.
func (s *Session) noteUnwatched(present map[gpu.UUID]board) {
	e := s.events
	for id := range e.refused {
		if _, ok := present[id]; !ok {
			delete(e.refused, id)
		}
	}
	for id := range present {
		p := s.pollsOf(id)
		s.mu.Lock()
		p.unwatched = e.watched[id] == nil
		s.mu.Unlock()
	}
}
