package nvml

import (
	"context"
	"errors"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

const (
	// eventWait is the longest time of one wait for an event, and so the longest time until a set can be freed.
	eventWait = 500 * time.Millisecond
	// interruptedPause follows a wait that ended early without an event, as an interrupt may end it.
	interruptedPause = 20 * time.Millisecond
	// firstEventPause is the time until the set is created again after an error. It is doubled after each further error.
	firstEventPause   = time.Second
	longestEventPause = 30 * time.Second
)

// WatchHealth calls report for each event of the GPUs that were inspected, until the context ends, and then returns nil. An event without a
// GPU says that events may have been missed. gpu.ErrDriverNotLoaded: the session was closed or the driver unloaded. Only one call at a time
// gets the events.
func (s *Session) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	defer s.endEvents()
	pause := firstEventPause
	for {
		event, wait, err := s.nextEvent(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, gpu.ErrDriverNotLoaded):
			return err
		case err != nil:
			event, wait = &gpu.HealthEvent{}, pause
			pause = min(2*pause, longestEventPause)
		case event == nil || event.GPU != "":
			pause = firstEventPause // a wait has succeeded
		}
		if event != nil {
			report(*event)
		}
		sleep(ctx, wait)
	}
}

// sleep waits for that time; at most until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// endEvents frees the set of a watch that ends.
func (s *Session) endEvents() {
	release, err := s.events.take(context.Background())
	if err == nil {
		s.freeEvents()
		s.events.missed = false // nothing waits for events
		release()
	}
}

// nextEvent waits once for an event; nil if none came. wait is the time to let pass before the next call. After an error there is no set.
func (s *Session) nextEvent(ctx context.Context) (event *gpu.HealthEvent, wait time.Duration, err error) {
	e := s.events
	release, err := e.active(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	if err := s.ensureEvents(ctx); err != nil {
		s.freeEvents()
		return nil, 0, err
	}
	if e.missed {
		e.missed = false
		return &gpu.HealthEvent{}, 0, nil
	}
	if len(e.watched) == 0 {
		return nil, eventWait, nil
	}
	begun := time.Now()
	data, err := s.waitEvent(ctx)
	switch {
	case err != nil:
		s.freeEvents()
		return nil, 0, err
	case data != nil:
		return e.eventOf(data), 0, nil
	case time.Since(begun) < eventWait/2:
		return nil, interruptedPause, nil
	default:
		return nil, 0, nil
	}
}

// waitEvent waits for an event; nil if none came. It does not end with the context, because the set cannot be freed during the call.
func (s *Session) waitEvent(ctx context.Context) (*nvml.EventData, error) {
	const milliseconds = uint32(eventWait / time.Millisecond)
	set := s.events.set
	call := library.Call{On: eventSet, Name: "nvmlEventSetWait_v2", Limit: eventWait + s.opts.Deadline}
	return library.Ask(context.WithoutCancel(ctx), s.driver, call, func() (*nvml.EventData, nvml.Return) {
		data, ret := set.Wait(milliseconds)
		if ret == nvml.ERROR_TIMEOUT {
			return nil, nvml.SUCCESS
		}
		return &data, ret
	})
}

// eventOf returns an event of NVML. The GPU is empty if the handle is unknown.
func (e *events) eventOf(data *nvml.EventData) *gpu.HealthEvent {
	event := &gpu.HealthEvent{GPU: e.ids[data.Device]}
	if data.EventType == nvml.EventTypeXidCriticalError {
		event.XID = data.EventData
	}
	return event
}
