package maintenance

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// ReleasePorts are the ports for closing sessions.
type ReleasePorts struct {
	// File stores until when sessions are closed, for all processes of the node.
	File File
	// Session closes this process's sessions of the driver until a time; the zero time opens them again.
	Session func(ctx context.Context, until time.Time)
	// Records returns the records of the node's claims.
	Records func() ([]*checkpoint.Record, error)
	// WithGPULock calls do with the GPU's lock held, so that no claim on that GPU is prepared or unprepared meanwhile.
	WithGPULock func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error
	// Clients lists processes, other than Prism's, that have a GPU open.
	Clients func(ctx context.Context, g *gpu.GPU) ([]Client, error)
}

const (
	// lockTime limits the wait for claims on the GPU, retryAfter is the wait after a file that could not be written or read.
	lockTime   = 10 * time.Second
	retryAfter = 10 * time.Second
)

// releases has the processes of the node close their sessions. One goroutine decides and follows.
type releases struct {
	ports   ReleasePorts
	events  events.Recorder
	invalid *invalid
	wake    chan struct{}

	wanted *wanted
	// accepted are the releases in force, by the key of their annotation; refused are values that were decided and are not in force.
	accepted map[string]accepted
	refused  map[string]string
	// session is until when the sessions of this process are closed; zero if they are not.
	session time.Time
	// leads: the process decides. inherited is the end of the release that was in force when it began to.
	leads     bool
	inherited time.Time
}

// wanted is the input of a decision.
type wanted struct {
	mu       sync.Mutex
	commands []maintenance.Command
	// gpus are the GPUs of the releases by name.
	gpus map[string]gpu.GPU
	// leading: this process decides.
	leading bool
}

// accepted is a release in force.
type accepted struct {
	command maintenance.Command
	// gpu is the GPU; nil if it is not known because the driver was released before this process started.
	gpu *gpu.GPU
	// announced: the Event was written.
	announced bool
}

func newReleases(ports ReleasePorts, recorder events.Recorder, reports *invalid) *releases {
	return &releases{
		ports: ports, events: recorder, invalid: reports, wake: make(chan struct{}, 1), wanted: &wanted{},
		accepted: map[string]accepted{}, refused: map[string]string{},
	}
}

// set passes the commands of a Node that was read.
func (r *releases) set(commands []maintenance.Command, gpus map[string]gpu.GPU, leading bool) {
	r.wanted.mu.Lock()
	r.wanted.commands, r.wanted.gpus, r.wanted.leading = commands, gpus, leading
	r.wanted.mu.Unlock()
	notify(r.wake)
}

// run decides and follows until the context ends.
func (r *releases) run(ctx context.Context) {
	for {
		wait := r.step(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// step brings file, sessions and Events in line with the Node, and returns when it has to be called again at the latest.
func (r *releases) step(ctx context.Context) time.Duration {
	err := r.decide(ctx)
	now := time.Now()
	r.follow(ctx, now)
	r.announce(ctx)
	wait := time.Hour
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "A release for maintenance is not stored yet")
		wait = retryAfter
	}
	if !r.session.IsZero() {
		wait = min(wait, max(r.session.Sub(now), 0))
	}
	return wait
}

// follow closes or opens the sessions of this process as the file says. A file that cannot be read changes nothing.
func (r *releases) follow(ctx context.Context, now time.Time) {
	until, err := r.ports.File.Until(now)
	if err != nil && r.session.After(now) {
		return
	}
	if !until.Equal(r.session) {
		r.session = until
		r.ports.Session(ctx, until)
	}
}

// decide accepts and ends releases if this process leads, and stores the result.
func (r *releases) decide(ctx context.Context) error {
	r.wanted.mu.Lock()
	commands, gpus, leading := r.wanted.commands, r.wanted.gpus, r.wanted.leading
	r.wanted.mu.Unlock()
	if !leading {
		r.leads = false
		clear(r.accepted)
		return nil
	}
	if !r.leads {
		if err := r.ports.File.Sweep(); err != nil {
			return err
		}
		r.leads = true
		r.inherited, _ = r.ports.File.Until(time.Now())
	}
	present := map[string]bool{}
	undecided := false
	for i := range commands {
		if c := &commands[i]; c.Verb == maintenance.Release {
			present[c.Key] = true
			undecided = r.consider(ctx, c, commands, gpus) || undecided
		}
	}
	maps.DeleteFunc(r.accepted, func(key string, a accepted) bool { return !present[key] || !maintained(a.command.GPU, commands) })
	maps.DeleteFunc(r.refused, func(key, _ string) bool { return !present[key] })
	if undecided {
		return nil
	}
	return r.store(r.until(), time.Now())
}

// consider decides about one release, once for each value. It is undecided while the GPU is not known.
func (r *releases) consider(ctx context.Context, c *maintenance.Command, all []maintenance.Command, gpus map[string]gpu.GPU) (undecided bool) {
	now := time.Now()
	passed := !now.Before(c.Time)
	if a, has := r.accepted[c.Key]; has {
		if a.command.Value == c.Value && !passed {
			return false
		}
		delete(r.accepted, c.Key)
		if a.command.Value == c.Value {
			r.refused[c.Key] = c.Value
		}
	}
	if value, has := r.refused[c.Key]; has && value == c.Value {
		return false
	}
	why, undecided := r.try(ctx, c, all, gpus, now)
	if undecided {
		return true
	}
	if why == "" {
		return false
	}
	r.refused[c.Key] = c.Value
	if !passed || r.invalid.set(c.Key) { // a release that was over when the process started is no news
		r.invalid.report([]maintenance.Invalid{refusal(c, why)})
	}
	return false
}

// try accepts a release, or returns why not.
func (r *releases) try(ctx context.Context, c *maintenance.Command, all []maintenance.Command, gpus map[string]gpu.GPU, now time.Time,
) (why string, undecided bool) {
	if why := maintenance.CheckRelease(c.Time, now); why != "" {
		return why, false
	}
	if !maintained(c.GPU, all) {
		return "the GPU is not in maintenance; drain it first", false
	}
	g, known := gpus[c.GPU]
	if r.inherited.Equal(c.Time) { // an earlier process has accepted it, and the driver was not opened since
		if why = r.used(c.GPU); why == "" {
			r.accept(c, g, known)
		}
		return why, false
	}
	if !known {
		return "", true
	}
	why = r.release(ctx, c, g)
	return why, ctx.Err() != nil
}

// maintained reports whether the GPU with that name is in maintenance.
func maintained(name string, commands []maintenance.Command) bool {
	for i := range commands {
		if c := &commands[i]; c.Verb == maintenance.Maintain && (c.GPU == name || c.GPU == maintenance.All) {
			return true
		}
	}
	return false
}

func (r *releases) accept(c *maintenance.Command, g gpu.GPU, known bool) {
	a := accepted{command: *c}
	if known {
		a.gpu = &g
	}
	r.accepted[c.Key] = a
}

// release stores a release if no claim has the GPU, and returns why not. The GPU's lock is held: no claim is prepared in between.
func (r *releases) release(ctx context.Context, c *maintenance.Command, g gpu.GPU) string {
	waiting, stop := context.WithTimeout(ctx, lockTime)
	defer stop()
	why := ""
	err := r.ports.WithGPULock(waiting, g.UUID, func(context.Context) error {
		if why = r.used(c.GPU); why != "" {
			return nil
		}
		r.accept(c, g, true)
		err := r.store(r.until(), time.Now())
		if err != nil {
			delete(r.accepted, c.Key)
		}
		return err
	})
	if err != nil && waiting.Err() != nil {
		return "a claim on the GPU is being prepared or unprepared"
	}
	if err != nil {
		return err.Error()
	}
	return why
}

// used returns which claim has the GPU with that name; empty if none has. The GPU may be unknown: its name is the begin of its UUID.
func (r *releases) used(name string) string {
	records, err := r.ports.Records()
	if err != nil {
		return "the records of claims cannot be read now"
	}
	for _, record := range records {
		if !slices.ContainsFunc(record.LockedGPUs(), func(id gpu.UUID) bool { return begins(id, name) }) {
			continue
		}
		if record.PendingCleanup != nil {
			return "a cleanup after claim " + record.Claim.UID + " is pending on the GPU"
		}
		return "claim " + record.Claim.UID + " has the GPU"
	}
	return ""
}

// begins reports whether a name is the name of a GPU's device.
func begins(id gpu.UUID, name string) bool {
	const prefix = "gpu-"
	digits := func(text string) string {
		return strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(text), prefix), "-", "")
	}
	return strings.HasPrefix(digits(string(id)), digits(name))
}

// until is the end of the releases in force; zero without one.
func (r *releases) until() (last time.Time) {
	for _, a := range r.accepted {
		if a.command.Time.After(last) {
			last = a.command.Time
		}
	}
	return last
}

// store writes or removes the file unless it says the same.
func (r *releases) store(until, now time.Time) error {
	stored, err := r.ports.File.Until(now)
	if err == nil && stored.Equal(until) && !until.IsZero() {
		return nil
	}
	return r.ports.File.Put(until)
}

// announce writes the Events about releases in force. The sessions of this process are closed by then.
func (r *releases) announce(ctx context.Context) {
	for _, key := range slices.Sorted(maps.Keys(r.accepted)) {
		a := r.accepted[key]
		if a.announced || r.session.IsZero() {
			continue
		}
		a.announced = true
		r.accepted[key] = a
		r.events.Normal(events.GPUReleased, events.ActionMaintain, r.describe(ctx, &a))
	}
}

// describe says which GPU is released until when, and which processes have it open.
func (r *releases) describe(ctx context.Context, a *accepted) string {
	text := "GPU " + a.command.GPU + " is released until " + a.command.Time.UTC().Format(time.RFC3339) + ": "
	if a.gpu == nil {
		return text + "Prism was restarted meanwhile, and has opened no session of the driver"
	}
	clients, err := r.ports.Clients(ctx, a.gpu)
	return text + cmp.Or(listClients(clients, err), "no other process has it open")
}
