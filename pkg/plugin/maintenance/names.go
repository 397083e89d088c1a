package maintenance

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// names finds GPUs by the names of their devices. While the driver does not answer, the last GPUs that were known stay.
type names struct {
	gpus []gpu.GPU
	// current: the GPUs are known now. read: they were known at some time.
	current, read bool
}

// learn takes the GPUs of the node.
func (n *names) learn(gpus []gpu.GPU, err error) {
	n.current = err == nil
	if err == nil {
		n.gpus, n.read = gpus, true
	}
}

// known reports whether GPUs can be found.
func (n *names) known() bool { return n.read }

// of returns the GPUs with that name: one, all or none.
func (n *names) of(name string) (ids []gpu.UUID) {
	for i := range n.gpus {
		if g := &n.gpus[i]; name == maintenance.All || name == nameOf(g) {
			ids = append(ids, g.UUID)
		}
	}
	return ids
}

// nameOf is the name of a GPU's device.
func nameOf(g *gpu.GPU) string { return string(gpu.Whole{GPU: g}.Name()) }

// split separates the commands for GPUs that the node does not have. While the GPUs are not known, none are.
func (n *names) split(all []maintenance.Command) (commands []maintenance.Command, unknown []maintenance.Invalid) {
	for i := range all {
		c := &all[i]
		if n.current && c.GPU != maintenance.All && len(n.of(c.GPU)) == 0 {
			unknown = append(unknown, refusal(c, "the node has no GPU with that name"))
			continue
		}
		commands = append(commands, *c)
	}
	return commands, unknown
}

// uuids returns the GPUs of the releases among commands, as far as they are known.
func (n *names) uuids(commands []maintenance.Command) map[string]gpu.GPU {
	found := map[string]gpu.GPU{}
	for i := range commands {
		c := &commands[i]
		at := slices.IndexFunc(n.gpus, func(g gpu.GPU) bool { return nameOf(&g) == c.GPU })
		if c.Verb == maintenance.Release && at >= 0 {
			found[c.GPU] = n.gpus[at]
		}
	}
	return found
}

// refusal says why a command is not followed.
func refusal(c *maintenance.Command, why string) maintenance.Invalid {
	return maintenance.Invalid{Key: c.Key, Value: c.Value, Why: "Annotation " + c.Key + " of the node is ignored: " + why}
}
