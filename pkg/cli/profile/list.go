package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

func listCommand(c cluster) *cobra.Command {
	l := listing{things: ofReports}
	command := &cobra.Command{
		Use:   "list",
		Short: "List reports",
		Long: "Lists the reports of a namespace with their process, state and location: on a node, or in a container " +
			"for output type ContainerPath. A warning names the nodes that did not answer.",
		Example: "  kubectl prism profile list\n" +
			"  kubectl prism profile list -A --node node-1 -o wide\n" +
			"  kubectl prism profile list --pod train --field-selector status.state=Ready -o name",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return l.run(c, func(client *reports.Client, namespace string) (*contents, error) {
				list, err := client.List(command.Context(), namespace, l.Selection)
				if err != nil {
					return nil, err
				}
				slices.SortStableFunc(list.Items, func(a, b v1alpha1.Report) int {
					return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
				})
				return &contents{list, list.SilentNodes, list.TruncatedNodes, []*metav1.Table{table(list, l.allNamespaces, time.Now())}, c.none}, nil
			})
		},
	}
	l.bind(command)
	return command
}

// listing contains the flags of a command that prints a list.
type listing struct {
	selection
	things, format string
	noHeaders      bool
}

func (l *listing) bind(command *cobra.Command) {
	l.selection.bind(command.Flags(), l.things)
	command.Flags().StringVarP(&l.format, "output", "o", "", "Output format: table, wide, json, yaml, name, jsonpath=TEXT or go-template=TEXT")
	command.Flags().BoolVar(&l.noHeaders, "no-headers", false, "Omit the headers of the table.")
}

// contents is a list and its tables; none is called with the namespace if the first table is empty.
type contents struct {
	list              any
	silent, truncated []string
	tables            []*metav1.Table
	none              func(namespace string)
}

// run reads a list and prints it.
func (l *listing) run(c cluster, read func(client *reports.Client, namespace string) (*contents, error)) error {
	print, err := printer(l.format)
	if err != nil {
		return err
	}
	client, namespace, err := c.reports()
	if err != nil {
		return err
	}
	if l.allNamespaces {
		namespace = ""
	}
	found, err := read(client, namespace)
	if err != nil {
		return err
	}
	c.missing(client, l.things, found.silent, found.truncated)
	if print != nil {
		return printAll(print, found.list, c)
	}
	if len(found.tables[0].Rows) == 0 {
		found.none(namespace)
	}
	return l.print(c, found.tables)
}

// print prints the tables that are not empty.
func (l *listing) print(c cluster, tables []*metav1.Table) error {
	tables = slices.DeleteFunc(tables, func(t *metav1.Table) bool { return len(t.Rows) == 0 })
	for i, t := range tables {
		if i > 0 {
			c.print("")
		}
		options := printers.PrintOptions{NoHeaders: l.noHeaders, Wide: l.format == "wide"}
		if err := printers.NewTablePrinter(options).PrintObj(t, c.Out); err != nil {
			return err
		}
	}
	return nil
}

// printer returns the printer of a format, or nil for tables.
func printer(format string) (printers.ResourcePrinter, error) {
	if format == "" || format == "table" || format == "wide" {
		return nil, nil
	}
	flags := genericclioptions.NewPrintFlags("")
	flags.OutputFormat = &format
	print, err := flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("--output: unsupported value %q; supported values: table, wide, json, yaml, name, jsonpath=TEXT, go-template=TEXT", format)
	}
	return print, err
}

// printAll prints a list as an object of the API.
func printAll(print printers.ResourcePrinter, list any, c cluster) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
	if err != nil {
		return fmt.Errorf("printing the list: %w", err)
	}
	whole := &unstructured.UnstructuredList{Object: object}
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if of, ok := item.(map[string]any); ok {
				whole.Items = append(whole.Items, unstructured.Unstructured{Object: of})
			}
		}
	}
	delete(object, "items")
	return print.PrintObj(whole, c.Out)
}

// table returns a row for each report.
func table(list *v1alpha1.ReportList, allNamespaces bool, now time.Time) *metav1.Table {
	t := newTable(allNamespaces,
		[]string{"Name", "Claim", "Pod", "Container", "Process", "State", "Reason", "Size", "Age", "Location", "File"}, []string{"PID", "Tool", "Message"})
	for i := range list.Items {
		r := &list.Items[i]
		bytes := ""
		if r.Status.Size > 0 {
			bytes = size(r.Status.Size)
		}
		t.row(r.Namespace, r.Name, r.Spec.Claim, r.Spec.Pod, r.Spec.Container, r.Spec.Process, r.Status.State, r.Status.Reason, bytes,
			age(r.CreationTimestamp, now), location(r), r.Status.File, number(r.Spec.PID), r.Spec.Tool, r.Status.Message)
	}
	return &t.Table
}

// escapedTable is a table of text of containers.
type escapedTable struct {
	metav1.Table
	namespaces bool
}

// newTable returns a table without rows; the columns wide are for -o wide only.
func newTable(namespaces bool, columns, wide []string) *escapedTable {
	t := &escapedTable{namespaces: namespaces}
	if namespaces {
		columns = slices.Insert(columns, 0, "Namespace")
	}
	for i, name := range slices.Concat(columns, wide) {
		column := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if i >= len(columns) {
			column.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, column)
	}
	return t
}

// row adds a row.
func (t *escapedTable) row(namespace string, cells ...string) {
	if t.namespaces {
		cells = slices.Insert(cells, 0, namespace)
	}
	row := metav1.TableRow{}
	for _, cell := range cells {
		row.Cells = append(row.Cells, cmp.Or(reports.Escape(cell), "<none>"))
	}
	t.Rows = append(t.Rows, row)
}

// number formats a number; 0 is unknown.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// location returns the location of a report's file.
func location(r *v1alpha1.Report) string {
	if r.Status.Path != "" {
		return fmt.Sprintf("%s/%s:%s", r.Spec.Pod, r.Spec.Container, r.Status.Path)
	}
	return "node/" + r.Spec.Node
}

func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// size formats a number of bytes in the units of Kubernetes, with at most three digits before the unit.
func size(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	value, unit := float64(bytes), 0
	for value >= 1000 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return resource.NewQuantity(bytes, resource.BinarySI).String()
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + units[unit]
}
