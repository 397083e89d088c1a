package gpus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// row is a GPU in the list.
type row struct {
	cluster.GPU
	// Maintenance is the reason of an administrator; nil without maintenance.
	Maintenance *string `json:"maintenance,omitempty"`
	// Claims is the number of claims that the GPU is allocated to; nil if the user may not list them.
	Claims *int `json:"claims,omitempty"`
}

func listCommand(c *cluster.Connection) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "list [NODE]",
		Short: "List GPUs with their taints",
		Long: "Lists the GPUs of a node, or of all nodes, with their devices, the number of claims that they are allocated to, their taints, the " +
			"reason of a maintenance, and the age of the oldest taint. Taints of a part of the devices are followed by the number of devices. " +
			"Taints of DeviceTaintRules are not included.",
		Example: "  kubectl prism gpu list\n" +
			"  kubectl prism gpu list node-1 -o wide",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "table", "wide", "json", "yaml"}, format) {
				return fmt.Errorf("--output: unsupported value %q; supported values: table, wide, json, yaml", format)
			}
			rows, err := list(command, c, strings.Join(args, ""))
			if err != nil {
				return err
			}
			return print(c, rows, format)
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "", "Output format: table, wide, json or yaml.")
	return command
}

// list reads the GPUs of a node, or of all nodes for "".
func list(command *cobra.Command, c *cluster.Connection, node string) ([]row, error) {
	ctx := command.Context()
	client, err := c.Connect()
	if err != nil {
		return nil, err
	}
	slices, err := cluster.Slices(ctx, client, client.Driver, node)
	if err != nil {
		return nil, err
	}
	if len(slices) == 0 && node != "" {
		return nil, unpublished(ctx, client, node)
	}
	annotations, err := cluster.Annotations(ctx, client.Metadata, node)
	if err != nil {
		c.Warn("%v; reasons of maintenance are missing", err)
	}
	claims, err := cluster.Claims(ctx, client, client.Driver)
	if err != nil {
		c.Warn("%v; numbers of claims are missing", err)
	}
	used := map[cluster.Place]int{}
	for i := range claims {
		for _, at := range cluster.Allocated(&claims[i], client.Driver) {
			used[at]++
		}
	}
	var rows []row
	for _, gpu := range cluster.GPUs(slices) {
		r := row{GPU: gpu}
		if reason, found := reasonOf(annotations[gpu.Node], client.Driver, gpu.Name); found {
			r.Maintenance = &reason
		}
		if err == nil {
			r.Claims = new(used[gpu.Place])
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// print prints the list in a format.
func print(c *cluster.Connection, rows []row, format string) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(c.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(map[string]any{"items": rows})
	case "yaml":
		written, err := yaml.Marshal(map[string]any{"items": rows})
		if err == nil {
			_, err = c.Out.Write(written)
		}
		return err
	}
	if len(rows) == 0 {
		_, _ = fmt.Fprintf(c.ErrOut, "No GPUs of driver %s found.\n", c.Driver)
		return nil
	}
	options := printers.PrintOptions{Wide: format == "wide"}
	return printers.NewTablePrinter(options).PrintObj(table(rows, c.Driver, time.Now()), c.Out)
}

// table returns a row for each GPU.
func table(rows []row, driver string, now time.Time) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range []string{"Node", "GPU", "Index", "Product", "Devices", "Claims", "Taints", "Reason", "Since"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range []string{"UUID", "Driver"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	for i := range rows {
		r := &rows[i]
		cells := metav1.TableRow{}
		for _, cell := range []string{
			r.Node, r.Name, number(r.Index), r.Product, devices(r.Devices), number(r.Claims), taints(&r.GPU, driver), r.reason(driver), since(r.Taints, now),
			r.UUID, r.DriverVersion,
		} {
			cells.Cells = append(cells.Cells, cmp.Or(reports.Escape(cell), "<none>"))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// number formats a number; nil is unknown.
func number[T int | int64](n *T) string {
	if n == nil {
		return "<unknown>"
	}
	return strconv.FormatInt(int64(*n), 10)
}

// devices lists the types of devices with their number: "gpu 1, mig 13".
func devices(types map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(types)) {
		all = append(all, fmt.Sprintf("%s %d", name, types[name]))
	}
	return strings.Join(all, ", ")
}

// taints lists the taints without the driver's domain in their keys: "recovery-action=gpu-reset:NoSchedule".
func taints(gpu *cluster.GPU, driver string) string {
	var all []string
	for _, t := range gpu.Taints {
		text := strings.TrimPrefix(t.Key, driver+"/")
		if t.Value != "" {
			text += "=" + t.Value
		}
		text += ":" + t.Effect
		if total := gpu.Total(); t.Devices < total {
			text += fmt.Sprintf("(%d/%d)", t.Devices, total)
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}

// maintenanceTaint is the key, below the driver's domain, of the taint during maintenance.
const maintenanceTaint = string(maintenance.Maintain)

// reason is the reason of the maintenance.
func (r *row) reason(driver string) string {
	if r.Maintenance == nil {
		return ""
	}
	if !r.Tainted(driver + "/" + maintenanceTaint) {
		return *r.Maintenance + " (the kubelet plugin has not tainted the GPU yet)"
	}
	return *r.Maintenance
}

// since is the age of the oldest taint.
func since(taints []cluster.Taint, now time.Time) string {
	var oldest time.Time
	for _, t := range taints {
		if t.Since != nil && (oldest.IsZero() || t.Since.Time.Before(oldest)) {
			oldest = t.Since.Time
		}
	}
	if oldest.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(oldest))
}
