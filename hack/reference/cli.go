package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli"
)

// cliPage documents pkg/cli.
func cliPage(string) (string, error) {
	out := newText("kubectl prism", "pkg/cli")
	out.para("`kubectl-prism` is a plugin of kubectl: if the program is in `PATH`, kubectl has the command `kubectl prism`. It queries the cluster as the " +
		"user of the kubeconfig, and accepts kubectl's flags for that, such as `-n`, `--context` and `--kubeconfig`, with every command. " +
		"Guides: [../see-gpus.md](../see-gpus.md), [../why-pending.md](../why-pending.md), [../validate.md](../validate.md), [../profile-reports.md](../profile-reports.md), [../profile-by-hand.md](../profile-by-hand.md).")
	writeCommand(out, cli.Command("", genericiooptions.NewTestIOStreamsDiscard()))
	return out.String(), nil
}

// writeCommand writes the commands without subcommands, depth first.
func writeCommand(out *text, command *cobra.Command) {
	below := command.Commands()
	for _, child := range below {
		writeCommand(out, child)
	}
	if len(below) > 0 {
		return
	}
	usage := strings.TrimSuffix(strings.Replace(command.UseLine(), "kubectl-prism", "kubectl prism", 1), " [flags]")
	out.heading(command.CommandPath())
	out.para(plain(command.Long))
	out.para("```sh\n" + usage + "\n```")
	out.para("Examples:")
	out.para("```sh\n" + strings.ReplaceAll(strings.TrimPrefix(command.Example, "  "), "\n  ", "\n") + "\n```")
	t := table{head: []string{"flag", "default", "description"}}
	command.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		names := []string{"--" + f.Name}
		if f.Shorthand != "" {
			names = append(names, "-"+f.Shorthand)
		}
		if f.Name != "help" {
			t.row(codes(names), code(f.DefValue), plain(f.Usage))
		}
	})
	out.table(t)
}
