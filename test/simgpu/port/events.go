package port

import (
	"context"
	"errors"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// healthEvents are the types that are registered, as far as the driver knows them.
const healthEvents = model.EventXID | model.EventDoubleBitECC | model.EventGPUUnavailable | model.EventRecoveryAction

const (
	// eventWait is the duration of a wait without an event. The product's session waits 500 ms; a longer wait costs tests in fake time less.
	eventWait = time.Hour
	// firstEventPause is the time until the set is created again after an error. It is doubled after each further error.
	firstEventPause   = time.Second
	longestEventPause = 30 * time.Second
)

// WatchHealth reports the events of all GPUs until the context ends, and then returns nil. An event without a GPU says that events may have
// been missed. gpu.ErrDriverNotLoaded: the session was closed or the driver unloaded.
func (s *Session) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	pause := firstEventPause
	for ctx.Err() == nil {
		err := s.watch(ctx, func(e gpu.HealthEvent) {
			pause = firstEventPause
			report(e)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, gpu.ErrDriverNotLoaded):
			return err
		case err == nil: // GPUs that could not be registered are tried again
			continue
		}
		report(gpu.HealthEvent{})
		sleep(ctx, pause)
		pause = min(2*pause, longestEventPause)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watch reports the events of one set. It returns nil when GPUs that could not be registered are to be tried again.
func (s *Session) watch(ctx context.Context, report func(gpu.HealthEvent)) error {
	if err := s.call(ctx, "nvmlEventSetCreate", wholeNode); err != nil {
		return err
	}
	set, err := s.session.NewEventSet()
	if err != nil {
		return asError("nvmlEventSetCreate", err)
	}
	defer s.session.FreeEventSet(set) //nolint:errcheck // it may be gone with its session
	ids, all, err := s.register(ctx, set)
	if err != nil {
		return err
	}
	for {
		wait := eventWait
		if !all {
			wait = longestEventPause
		}
		event, err := s.waitEvent(ctx, set, wait)
		switch {
		case errors.Is(err, gpu.ErrTimeout) && !all:
			return nil
		case errors.Is(err, gpu.ErrTimeout):
			continue
		case err != nil:
			return err
		}
		found := gpu.HealthEvent{GPU: ids[event.GPU]}
		if event.Type == model.EventXID {
			found.XID = event.Data
		}
		report(found)
	}
}

func (s *Session) waitEvent(ctx context.Context, set model.SetID, wait time.Duration) (model.Event, error) {
	const symbol = "nvmlEventSetWait_v2"
	if err := s.call(ctx, symbol, wholeNode); err != nil {
		return model.Event{}, err
	}
	event, err := s.session.Wait(ctx, set, wait)
	if s.closed.Load() {
		return model.Event{}, asError(symbol, model.Uninitialized)
	}
	return event, asError(symbol, err)
}

// register adds all GPUs that respond to the set. all: none was left out.
func (s *Session) register(ctx context.Context, set model.SetID) (ids map[model.Handle]gpu.UUID, all bool, err error) {
	ids, all = map[model.Handle]gpu.UUID{}, true
	count, err := s.session.Count()
	if err != nil {
		return nil, false, asError("nvmlDeviceGetCount_v2", err)
	}
	for index := range count {
		handle, err := s.session.ByIndex(index)
		if err != nil {
			return nil, false, asError("nvmlDeviceGetHandleByIndex_v2", err)
		}
		id, err := device{s, ctx, handle}.register(set)
		switch {
		case errors.Is(err, gpu.ErrDriverNotLoaded), ctx.Err() != nil:
			return nil, false, err
		case err != nil:
			all = false
		default:
			ids[handle] = id
		}
	}
	return ids, all, nil
}

func (d device) register(set model.SetID) (gpu.UUID, error) {
	_, id, err := d.session.Device(d.handle)
	if err != nil {
		return "", asError("nvmlDeviceGetUUID", err)
	}
	var types model.EventType
	err = d.ask("nvmlDeviceGetSupportedEventTypes", func() (err error) {
		types, err = d.session.SupportedEvents(d.handle)
		return err
	})
	if err != nil {
		return "", err
	}
	return gpu.UUID(id.UUID), d.ask("nvmlDeviceRegisterEvents", func() error { return d.session.Watch(d.handle, types&healthEvents, set) })
}
