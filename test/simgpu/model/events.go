package model

import (
	"context"
	"slices"
	"time"
)

// EventType is a bit of NVML's event mask.
type EventType uint64

// The event types that a simulated GPU can raise.
const (
	EventSingleBitECC EventType = 1 << 0
	EventDoubleBitECC EventType = 1 << 1
	EventXID          EventType = 1 << 3
	// EventGPUUnavailable is raised when the GPU gets lost, EventRecoveryAction when the driver asks for another repair.
	EventGPUUnavailable EventType = 1 << 14
	EventRecoveryAction EventType = 1 << 15
)

// supportedEvents are the event types that drivers of a branch know.
func supportedEvents(branch int) EventType {
	types := EventSingleBitECC | EventDoubleBitECC | EventXID
	if branch >= recoveryBranch {
		types |= EventGPUUnavailable | EventRecoveryAction
	}
	return types
}

// maxQueuedEvents bounds the queue of an event set; the oldest events are dropped first.
const maxQueuedEvents = 256

// Event is an event of a GPU.
type Event struct {
	GPU         Handle
	Type        EventType
	Data        uint64 // the XID number of an EventXID
	GPUInstance uint32 // NoInstance for one that does not belong to a GPU instance
}

// SetID names an event set inside NVML calls. It is never 0.
type SetID uint64

type eventSets struct {
	last SetID
	sets map[SetID]*eventSet
}

type eventSet struct {
	owner *Session
	masks map[int]EventType // by GPU ordinal
	queue []Event
	wake  chan struct{} // buffered by one: something changed
}

func newEventSets() eventSets { return eventSets{last: 0x20000, sets: map[SetID]*eventSet{}} }

func (es eventSets) wakeAll() {
	for _, set := range es.sets {
		set.poke()
	}
}

func (set *eventSet) poke() {
	select {
	case set.wake <- struct{}{}:
	default:
	}
}

func (set *eventSet) put(e Event) {
	if len(set.queue) == maxQueuedEvents {
		set.queue = set.queue[1:]
	}
	set.queue = append(set.queue, e)
	set.poke()
}

// PostXID raises a critical error on a GPU. It fails with InvalidArgument if no such GPU exists.
func (n *Node) PostXID(ordinal int, xid uint64) error {
	return n.PostInstanceXID(ordinal, NoInstance, xid)
}

// PostInstanceXID raises a critical error that belongs to a GPU instance, or with NoInstance to the GPU. It reaches every event set that
// watches the GPU. It fails with InvalidArgument if no such GPU exists, and with NotFound if no such GPU instance exists.
func (n *Node) PostInstanceXID(ordinal int, instance uint32, xid uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ordinal < 0 || ordinal >= len(n.gpus) {
		return InvalidArgument
	}
	here := func(gi *gpuInstance) bool { return gi.id == instance }
	if instance != NoInstance && !slices.ContainsFunc(n.gpus[ordinal].mig.instances, here) {
		return NotFound
	}
	n.post(ordinal, Event{Type: EventXID, Data: xid, GPUInstance: instance})
	return nil
}

// post raises an event of a GPU: it reaches every event set that watches the GPU for its type.
func (n *Node) post(ordinal int, e Event) {
	e.GPU = handleOf(ordinal)
	for _, set := range n.events.sets {
		if set.masks[ordinal]&e.Type != 0 {
			set.put(e)
		}
	}
}

// SupportedEvents is the result of nvmlDeviceGetSupportedEventTypes.
func (s *Session) SupportedEvents(h Handle) (EventType, error) {
	var types EventType
	err := s.with(h, func(*gpu) error {
		types = supportedEvents(s.node.driver.version.Branch())
		return nil
	})
	return types, err
}

// NewEventSet creates an empty event set, which exists until it is freed or its
// session closes.
func (s *Session) NewEventSet() (SetID, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return 0, err
	}
	s.node.events.last++
	id := s.node.events.last
	s.node.events.sets[id] = &eventSet{owner: s, masks: map[int]EventType{}, wake: make(chan struct{}, 1)}
	return id, nil
}

// Watch adds events of a GPU to a set. It fails with NotSupported if the GPU cannot raise one of the types, and adds none then, and with
// InvalidArgument for an unknown set.
func (s *Session) Watch(h Handle, types EventType, id SetID) error {
	return s.with(h, func(g *gpu) error {
		set := s.node.events.sets[id]
		switch {
		case set == nil || set.owner != s:
			return InvalidArgument
		case types&^supportedEvents(s.node.driver.version.Branch()) != 0:
			return NotSupported
		}
		set.masks[g.id.Ordinal] |= types
		return nil
	})
}

// FreeEventSet frees a set; waiting calls on it fail.
func (s *Session) FreeEventSet(id SetID) error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	set := s.node.events.sets[id]
	if set == nil || set.owner != s {
		return InvalidArgument
	}
	delete(s.node.events.sets, id)
	set.poke()
	return nil
}

// Close frees the event sets of the session, and ends its use of the GPUs.
func (s *Session) Close() {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	for id, set := range s.node.events.sets {
		if set.owner == s {
			delete(s.node.events.sets, id)
			set.poke()
		}
	}
	delete(s.node.sessions, s)
	s.closeContexts()
	s.closeSamples()
	for _, g := range s.visible {
		delete(g.sessions, s)
		g.clientGone()
	}
}

// Wait takes the next event of a set. It fails with Timeout if none comes in time, GPUIsLost if a watched GPU is lost, DriverNotLoaded if
// the driver is unloaded, and the cause of ctx when that ends first.
func (s *Session) Wait(ctx context.Context, id SetID, timeout time.Duration) (Event, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		event, wake, err := s.next(id)
		if err != nil || wake == nil {
			return event, err
		}
		select {
		case <-wake:
		case <-timer.C:
			return Event{}, Timeout
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// next returns an event, or the channel that signals when to retry.
func (s *Session) next(id SetID) (Event, <-chan struct{}, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if err := s.alive(); err != nil {
		return Event{}, nil, err
	}
	set := s.node.events.sets[id]
	if set == nil || set.owner != s {
		return Event{}, nil, InvalidArgument
	}
	if len(set.queue) == 0 {
		for ordinal := range set.masks {
			if s.node.Faults.Lost(ordinal) {
				return Event{}, nil, GPUIsLost
			}
		}
		return Event{}, set.wake, nil
	}
	event := set.queue[0]
	set.queue = set.queue[1:]
	return event, nil, nil
}
