package gpus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/screen"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// capacities is a run of kubectl prism capacity.
type capacities struct {
	*viewer
	client *cluster.Client
	// class is the argument: a DeviceClass or an extended resource; "" for all classes of the driver.
	class, gates string
	features     structured.Features
}

func capacityCommand(v *viewer) *cobra.Command {
	c := &capacities{viewer: v}
	command := &cobra.Command{
		Use:   "capacity [CLASS]",
		Short: "Show how many more devices of each class fit",
		Long: "Counts how many more claims for one device of a DeviceClass fit, on each node and in all, one after the other, as the scheduler's allocator " +
			"places them. Each class counts alone: a claim of one class takes room from others. Shares count with their default size. CPUs, memory and " +
			"taints of nodes do not count; unschedulable nodes have no room. CLASS can be an extended resource. Nothing is changed.",
		Example: "  kubectl prism capacity\n" +
			"  kubectl prism capacity mig-1g-10gb.gpu.prism.dev --node-selector zone=a\n" +
			"  kubectl prism capacity nvidia.com/gpu -o json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			c.class = strings.Join(args, "")
			return c.run(command.Context())
		},
	}
	c.bind(command.Flags())
	command.Flags().StringVar(&c.gates, "feature-gates", "", gatesUsage)
	return command
}

// gatesUsage describes the flag --feature-gates.
const gatesUsage = "Feature gates of the scheduler that differ from the defaults of its version, such as DRAConsumableCapacity=false."

func (c *capacities) run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.client, err = c.Connect(); err != nil {
		return err
	}
	if c.features, err = view.Features(ctx, c.client, c.gates); err != nil {
		return err
	}
	options := view.Options{Driver: c.client.Driver, NodeSelector: c.nodeSelector}
	if c.watch {
		err := view.Watch(ctx, c.client, options, func(picture *clusterview.Cluster, missing []view.Missing) error {
			return c.show(ctx, picture, missing)
		})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	picture, missing, err := view.Read(ctx, c.client, options)
	if err != nil {
		return err
	}
	return c.show(ctx, picture, missing)
}

// show counts, and writes the numbers.
func (c *capacities) show(ctx context.Context, picture *clusterview.Cluster, missing []view.Missing) error {
	c.warn(picture, missing, c.client.Clock.Now())
	if err := unread(missing, resourceSlices, deviceClasses); err != nil {
		return err
	}
	if picture.Scope.Namespace != "" {
		c.once("claims of other namespaces are not counted: there is less room than shown")
	}
	if !slices.ContainsFunc(picture.Nodes, func(n *clusterview.Node) bool { return len(n.Pools) > 0 }) && len(picture.Shared) == 0 {
		return noGPUs(ctx, c.client)
	}
	names := explain.ClassesOf(picture, c.client.Driver)
	if c.class != "" {
		name, err := resolveClass(picture, c.class)
		if err != nil {
			return err
		}
		if !slices.Contains(names, name) {
			c.once(fmt.Sprintf("no selector of DeviceClass %s names driver %s: only devices of this driver are counted", name, c.client.Driver))
		}
		names = []string{name}
	}
	free, err := explain.FreeCapacity(ctx, explain.NewSolver(picture, c.features), c.client.Driver, names)
	if err != nil {
		return err
	}
	if done, err := encode(c.Out, c.format, free); done {
		return err
	}
	return c.draw(capacityText(c.screen(), free, c.class != "", c.wide()))
}

// resolveClass returns the DeviceClass of a name, or of an extended resource.
func resolveClass(picture *clusterview.Cluster, name string) (string, error) {
	if picture.Classes[name] != nil {
		return name, nil
	}
	names := slices.Sorted(maps.Keys(picture.Classes))
	for _, class := range names {
		if resource := picture.Classes[class].Spec.ExtendedResourceName; resource != nil && *resource == name {
			return class, nil
		}
	}
	return "", fmt.Errorf("DeviceClass %s does not exist%s", name, similar(name, names))
}

// capacityText is the table of a class by node, or of all classes.
func capacityText(s screen.Screen, free *explain.Free, one, wide bool) string {
	var text string
	switch {
	case one:
		text = roomByNode(s, free.Rooms, len(free.Rooms) > 1)
	case wide:
		text = roomByNode(s, free.Rooms, true)
	default:
		text = roomByClass(s, free.Rooms)
	}
	var lines []string
	for i := range free.Rooms {
		if problem := free.Rooms[i].Problem; problem != "" {
			lines = append(lines, fmt.Sprintf("The scheduler places no claim of %s: %s", safe(roomName(&free.Rooms[i])), safe(problem)))
		}
	}
	if left := free.Stranded; left.MemorySlices > 0 {
		lines = append(lines, fmt.Sprintf("Memory that no profile can use: %s, %s of %s", size(left.Bytes),
			quantity(left.MemorySlices, "memory slice"), quantity(left.GPUs, "GPU")))
	}
	if len(free.Cordoned) > 0 {
		lines = append(lines, "Unschedulable nodes have no room: "+strings.Join(free.Cordoned, ", "))
	}
	for _, line := range lines {
		text += strings.Join(screen.Cuts(line, "", "  ", s.Width), "\n") + "\n"
	}
	return text
}

// roomByClass is a table with a row for each class.
func roomByClass(s screen.Screen, rooms []explain.Room) string {
	columns := []screen.Column{{Title: "CLASS", Kind: screen.Name}, {Title: "FIT"}, {Title: "NODES"}, {Title: "MOST"}}
	var rows [][]string
	for i := range rooms {
		room := &rooms[i]
		most := 0
		for _, node := range room.Nodes {
			most = max(most, node.Count)
		}
		rows = append(rows, []string{safe(roomName(room)), fit(room.Total, room.Unlimited), strconv.Itoa(len(room.Nodes)), fit(most, room.Unlimited)})
	}
	return s.Table(columns, rows, nil)
}

// roomByNode is a table with a row for each node that has room, and the sum.
func roomByNode(s screen.Screen, rooms []explain.Room, several bool) string {
	columns := []screen.Column{{Title: "NODE", Kind: screen.Name}, {Title: "FIT"}}
	if several {
		columns = append([]screen.Column{{Title: "CLASS", Kind: screen.Name}}, columns...)
	}
	var rows [][]string
	for i := range rooms {
		room := &rooms[i]
		add := func(node string, count int) {
			cells := []string{safe(node), fit(count, room.Unlimited)}
			if several {
				cells = append([]string{safe(roomName(room))}, cells...)
			}
			rows = append(rows, cells)
		}
		for _, node := range room.Nodes {
			name := node.Node
			if name == "" {
				name = "(several nodes)"
			}
			add(name, node.Count)
		}
		add("(all)", room.Total)
	}
	return s.Table(columns, rows, nil)
}

// roomName is the class, and the capacity that its claims request.
func roomName(room *explain.Room) string {
	if room.Capacity == "" {
		return room.Class
	}
	_, name, _ := strings.Cut(room.Capacity, "/")
	return room.Class + " " + name
}

// fit formats a number of claims.
func fit(n int, unlimited bool) string {
	if unlimited {
		return ">=" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

// quantity formats a number of things.
func quantity(n int, thing string) string {
	return fmt.Sprintf("%d %s", n, plural(n, thing))
}
