package profile

import (
	"cmp"
	"fmt"
	"slices"
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
	var chosen selection
	var format string
	var noHeaders bool
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
			print, err := printer(format)
			if err != nil {
				return err
			}
			client, namespace, err := c.reports()
			if err != nil {
				return err
			}
			if chosen.allNamespaces {
				namespace = ""
			}
			list, err := client.List(command.Context(), namespace, chosen.Selection)
			if err != nil {
				return err
			}
			c.missing(client, list)
			slices.SortStableFunc(list.Items, func(a, b v1alpha1.Report) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
			})
			if print != nil {
				return printAll(print, list, c)
			}
			if len(list.Items) == 0 {
				c.none(namespace)
				return nil
			}
			options := printers.PrintOptions{NoHeaders: noHeaders, Wide: format == "wide"}
			return printers.NewTablePrinter(options).PrintObj(table(list, chosen.allNamespaces, time.Now()), c.Out)
		},
	}
	chosen.bind(command.Flags())
	command.Flags().StringVarP(&format, "output", "o", "", "Output format: table, wide, json, yaml, name, jsonpath=TEXT or go-template=TEXT")
	command.Flags().BoolVar(&noHeaders, "no-headers", false, "Omit the headers of the table.")
	return command
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
func printAll(print printers.ResourcePrinter, list *v1alpha1.ReportList, c cluster) error {
	if list.Items == nil {
		list.Items = []v1alpha1.Report{}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
	if err != nil {
		return fmt.Errorf("printing reports: %w", err)
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
	columns := []metav1.TableColumnDefinition{
		{Name: "Name"}, {Name: "Claim"}, {Name: "Pod"}, {Name: "Container"}, {Name: "Process"}, {Name: "State"}, {Name: "Reason"}, {Name: "Size"},
		{Name: "Age"}, {Name: "Location"}, {Name: "File"},
		{Name: "PID", Priority: 1}, {Name: "Tool", Priority: 1}, {Name: "Message", Priority: 1},
	}
	if allNamespaces {
		columns = slices.Insert(columns, 0, metav1.TableColumnDefinition{Name: "Namespace"})
	}
	for i := range columns {
		columns[i].Type = "string"
	}
	t := &metav1.Table{ColumnDefinitions: columns}
	for i := range list.Items {
		r := &list.Items[i]
		pid, bytes := "", ""
		if r.Spec.PID != 0 {
			pid = fmt.Sprint(r.Spec.PID)
		}
		if r.Status.Size > 0 {
			bytes = size(r.Status.Size)
		}
		cells := []string{
			r.Name, r.Spec.Claim, r.Spec.Pod, r.Spec.Container, r.Spec.Process, r.Status.State, r.Status.Reason, bytes,
			age(r.CreationTimestamp, now), location(r), r.Status.File, pid, r.Spec.Tool, r.Status.Message,
		}
		if allNamespaces {
			cells = slices.Insert(cells, 0, r.Namespace)
		}
		row := metav1.TableRow{}
		for _, cell := range cells {
			row.Cells = append(row.Cells, cmp.Or(reports.Escape(cell), "<none>"))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
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
