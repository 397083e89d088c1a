package maintenance

import (
	"context"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

// Monitor has the findings of the node's GPUs; *health.Monitor is the real one.
type Monitor interface {
	// Maintain replaces the GPUs in maintenance, with the reasons of it.
	Maintain(reasons map[gpu.UUID]string)
	// Conditions replaces the types of the node's conditions that taint each GPU.
	Conditions(of map[gpu.UUID][]string)
	// Heal ends findings that began before a time. The error says why it does not.
	Heal(id gpu.UUID, before time.Time) error
	// All returns the present findings.
	All() []finding.Finding
}

// Options are the settings and the ports of a Controller.
type Options struct {
	DriverName string
	Monitor    Monitor
	// GPUs returns the GPUs of the node; the error says why they are not known now.
	GPUs func() ([]gpu.GPU, error)
	// Replaced returns a channel that is closed at the next change of the GPUs.
	Replaced func() <-chan struct{}
	// Releases are the ports for closing sessions.
	Releases ReleasePorts
	// Events are about the node.
	Events events.Recorder
}

// Node are the parts of a Node that matter here. They are not changed.
type Node struct {
	Annotations map[string]string
	Conditions  []Condition
}

// Condition is a condition of a Node.
type Condition struct{ Type, Status, Reason, Message string }

// Controller follows the Node.
type Controller struct {
	options    Options
	names      *names
	conditions *conditions
	heals      *heals
	invalid    *invalid
	releases   *releases
	changed    chan struct{}

	state *state
}

// state is the input of a round.
type state struct {
	mu sync.Mutex
	// node is nil until the Node was read.
	node *Node
	// leads counts how often the process has begun to lead; leading: it leads now.
	leads   int
	leading bool
}

// New returns a Controller. Call Start before the driver is opened.
func New(o Options) *Controller {
	c := &Controller{
		options: o, names: &names{}, conditions: newConditions(o.Monitor, o.Events), heals: newHeals(o.Monitor, o.Events), invalid: newInvalid(o.Events),
		changed: make(chan struct{}, 1), state: &state{},
	}
	c.releases = newReleases(o.Releases, o.Events, c.invalid)
	return c
}

// Start keeps sessions closed if the file says so: an earlier process may have released the GPUs.
func (c *Controller) Start(ctx context.Context) { c.releases.follow(ctx, time.Now()) }

// Node passes the present Node. It does not block.
func (c *Controller) Node(now Node) {
	c.state.mu.Lock()
	c.state.node = &now
	c.state.mu.Unlock()
	notify(c.changed)
}

// Lead makes the process decide about releases and write Events until the context ends. Call it after the monitor leads.
func (c *Controller) Lead(ctx context.Context) {
	c.lead(true)
	<-ctx.Done()
	c.lead(false)
}

func (c *Controller) lead(leading bool) {
	c.state.mu.Lock()
	c.state.leading = leading
	if leading {
		c.state.leads++
	}
	c.state.mu.Unlock()
	notify(c.changed)
}

// FileChanged makes the process follow the file of releases. It does not block.
func (c *Controller) FileChanged() { notify(c.releases.wake) }

// Run follows the Node until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	var releasing sync.WaitGroup
	defer releasing.Wait()
	releasing.Go(func() { c.releases.run(ctx) })
	for {
		replaced := c.options.Replaced()
		c.round()
		select {
		case <-c.changed:
		case <-replaced:
		case <-ctx.Done():
			return nil
		}
	}
}

// round applies the present Node to the present GPUs.
func (c *Controller) round() {
	c.state.mu.Lock()
	node, leading, leads := c.state.node, c.state.leading, c.state.leads
	c.state.mu.Unlock()
	if node == nil {
		return
	}
	c.names.learn(c.options.GPUs())
	commands, unread := maintenance.Parse(node.Annotations, c.options.DriverName)
	commands, unknown := c.names.split(commands)
	c.invalid.begin(leading, node.Annotations)
	c.invalid.report(append(unread, unknown...))
	if c.names.known() {
		c.options.Monitor.Maintain(c.maintained(commands))
		c.conditions.apply(node.Conditions, c.names, leading)
		c.heals.apply(commands, c.names, c.invalid, leads, leading)
	}
	c.releases.set(commands, c.names.uuids(commands), leading)
}

// maintained returns the GPUs in maintenance. The reason of a GPU's own annotation comes before the reason for all.
func (c *Controller) maintained(commands []maintenance.Command) map[gpu.UUID]string {
	reasons := map[gpu.UUID]string{}
	for _, own := range []bool{false, true} {
		for i := range commands {
			if command := &commands[i]; command.Verb == maintenance.Maintain && own == (command.GPU != maintenance.All) {
				for _, id := range c.names.of(command.GPU) {
					reasons[id] = command.Reason
				}
			}
		}
	}
	return reasons
}

// notify puts a token into a channel that holds one.
func notify(token chan<- struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
