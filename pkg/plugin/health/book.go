package health

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// staleAfter is how long a poll counts.
const staleAfter = 30 * time.Second

// countedInterval is the shortest time between two polls of all GPUs that end findings, which is half of the interval of the regular polls.
// Claims that change MIG modes, and errors of the wait for events, cause any number of others.
const countedInterval = 5 * time.Second

// State is whether a GPU works.
type State string

// The states.
const (
	Healthy   State = "Healthy"
	Unhealthy State = "Unhealthy"
	// Unknown means that the driver does not answer, or that the GPU was not polled for a while.
	Unknown State = "Unknown"
)

// Health is the state of a GPU.
type Health struct {
	State State
	// Message says what is wrong and how to repair it; empty for a healthy GPU.
	Message string
	// Blocking are the findings because of which the GPU gets no new claims, one of each key; All are all of its findings.
	Blocking, All []finding.Finding
	// Checked is the end of the last poll; zero before the first.
	Checked time.Time
}

// book holds the findings for all goroutines.
type book struct {
	mu      sync.Mutex
	rules   finding.Rules
	state   *finding.State
	checked map[gpu.UUID]time.Time
	// counted is the time of the last poll that could end findings.
	counted time.Time
	driver  driverLoad
	// unknown are codes of XID errors that are in no table, to be reported.
	unknown []uint64
	signal  signal
	// wake has Run publish, check GPUs, and wait again.
	wake chan struct{}
}

// driverLoad is the driver as the last poll found it.
type driverLoad struct {
	// err says why it could not be asked.
	err error
	// id identifies its load; empty before the first.
	id  string
	now func() string
}

// signal wakes readers when the health of a GPU changes.
type signal struct {
	changed chan struct{}
	shown   map[gpu.UUID]string
}

func newBook(rules finding.Rules, load func() string) *book {
	return &book{
		rules: rules, state: finding.NewState(rules), checked: map[gpu.UUID]time.Time{}, driver: driverLoad{now: load}, wake: make(chan struct{}, 1),
		signal: signal{changed: make(chan struct{}), shown: map[gpu.UUID]string{}},
	}
}

// All lists the findings of all GPUs.
func (b *book) All() []finding.Finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.All()
}

// Health returns the state of a GPU now.
func (b *book) Health(id gpu.UUID) Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.health(id, b.state.All(), time.Now())
}

// Changed returns a channel that is closed at the next change of a GPU's health.
func (b *book) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signal.changed
}

// Maintain replaces the GPUs under maintenance, and the reasons.
func (b *book) Maintain(reasons map[gpu.UUID]string) {
	of := map[gpu.UUID]map[string]string{}
	for id, reason := range reasons {
		of[id] = map[string]string{"": reason}
	}
	b.change(func(now time.Time) { b.state.Declare(finding.Maintenance, of, now) })
}

// Conditions replaces the types of the Node's conditions because of which GPUs get no claims.
func (b *book) Conditions(types map[gpu.UUID][]string) {
	of := map[gpu.UUID]map[string]string{}
	for id, all := range types {
		of[id] = map[string]string{}
		for _, condition := range all {
			of[id][condition] = ""
		}
	}
	b.change(func(now time.Time) { b.state.Declare(finding.NodeCondition, of, now) })
}

// Heal ends findings of a GPU that began before that time and that do not end by themselves. The error says why none can be ended.
func (b *book) Heal(id gpu.UUID, before time.Time) (err error) {
	b.change(func(time.Time) { _, err = b.state.Heal(id, before) })
	return err
}

// change changes the state, and wakes readers and Run.
func (b *book) change(how func(now time.Time)) {
	now := time.Now()
	b.mu.Lock()
	how(now)
	b.compare(now)
	b.mu.Unlock()
	b.renew()
}

// renew wakes Run. It does not block.
func (b *book) renew() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// compare wakes readers if the health of a GPU differs from the shown one. The caller holds mu.
func (b *book) compare(now time.Time) {
	all, shown := b.state.All(), map[gpu.UUID]string{}
	for id := range b.checked {
		h := b.health(id, all, now)
		text := string(h.State) + " " + h.Message
		for _, f := range h.Blocking {
			text += "\n" + string(f.Key) + "=" + f.Value + " " + string(f.Effect) + " " + f.Note
		}
		shown[id] = text
	}
	if !maps.Equal(shown, b.signal.shown) {
		close(b.signal.changed)
		b.signal = signal{make(chan struct{}), shown}
	}
}

// health is the state of a GPU with these findings of the node. The caller holds mu.
func (b *book) health(id gpu.UUID, all []finding.Finding, now time.Time) Health {
	h := Health{State: Healthy, Checked: b.checked[id]}
	for _, f := range all {
		if f.GPU == id {
			h.All = append(h.All, f)
		}
	}
	for _, f := range finding.Taints(h.All) {
		if !f.Blocks() {
			continue
		}
		h.Blocking = append(h.Blocking, f)
		if f.Unhealthy() {
			h.State = Unhealthy
			h.Message += "; " + finding.Message(&f)
		}
	}
	switch {
	case h.State == Unhealthy: // until a poll finds that the problem has ended
	case b.driver.err != nil:
		h.State, h.Message = Unknown, "; the NVIDIA driver does not answer: check the driver of the node"
	case h.Checked.IsZero() || now.Sub(h.Checked) >= staleAfter:
		h.State, h.Message = Unknown, "; the GPU was not polled lately: check the log of the kubelet plugin of the node"
	}
	if h.Message != "" {
		h.Message = h.Message[2:]
	}
	return h
}

// poll applies a poll, and reports whether it is the first one of a GPU with findings, which is published now.
func (b *book) poll(p gpu.HealthPoll) (urgent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.compare(p.At)
	if errors.Is(p.Err, inventory.ErrReleased) {
		return false
	}
	if p.Whole || p.Err == nil {
		b.driver.err = p.Err
	}
	if p.Err != nil {
		return false
	}
	if load := b.driver.now(); load != "" {
		if b.driver.id != "" && b.driver.id != load {
			b.state.DriverLoaded()
		}
		b.driver.id = load
	}
	counted := p.Whole && p.At.Sub(b.counted) >= countedInterval
	if counted {
		b.counted = p.At
	}
	for i := range p.Readings {
		reading := &p.Readings[i]
		changed := b.state.Observe(reading, p.At, counted)
		if _, before := b.checked[reading.UUID]; reading.UUID != "" {
			urgent = urgent || changed && !before
			b.checked[reading.UUID] = p.At
		}
	}
	return urgent
}

// xid applies an event, and reports whether there is something to publish or to report.
func (b *book) xid(e gpu.HealthEvent, now time.Time) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed, unknown := b.state.XID(e.GPU, e.XID, now)
	if unknown {
		b.unknown = append(b.unknown, e.XID)
	}
	if changed {
		b.compare(now)
	}
	return changed || unknown
}

// stale returns when the first health of a GPU becomes Unknown, and wakes readers if that has happened; zero: never.
func (b *book) stale() (due time.Time) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.compare(now)
	for _, at := range b.checked {
		if at = at.Add(staleAfter); at.After(now) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// sameLoad reports whether the driver was not loaded again since that load, as far as that is known.
func (b *book) sameLoad(saved string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.driver.id
	if now == "" {
		now = b.driver.now()
	}
	return saved == "" || now == "" || saved == now
}

// merge adds the findings of another process.
func (b *book) merge(saved content) {
	b.change(func(time.Time) {
		b.state.Merge(saved.State)
		if b.driver.id == "" {
			b.driver.id = saved.DriverLoad
		}
	})
}

// as returns stored findings under the present settings.
func (b *book) as(saved content) []finding.Finding {
	all := make([]finding.Finding, 0, len(saved.State.Findings))
	for _, f := range saved.State.Findings {
		all = append(all, b.rules.Finding(f))
	}
	return all
}

// snapshot returns the findings, their form on disk, and the codes that are to be reported, which it clears.
func (b *book) snapshot() (all []finding.Finding, saved content, unknown []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unknown, b.unknown = b.unknown, nil
	return b.state.All(), content{DriverLoad: b.driver.id, State: b.state.Save()}, unknown
}
