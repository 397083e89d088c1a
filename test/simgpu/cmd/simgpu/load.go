package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

type loadOptions struct {
	root   string
	period time.Duration
	file   string
	repeat bool
}

func loadCommand() *cobra.Command {
	o := &loadOptions{}
	c := &cobra.Command{
		Use:   "load GPU|MIG [QUANTITY=VALUE]...",
		Short: "set the load of a GPU or MIG device, by its number or UUID; without values: follow its processes",
		Long: `Set the load of a GPU or a MIG device: levels such as sm=60 (percent), power=450 (watts) or pcie-tx=900 (MiB/s), and
events such as ecc-corrected=3. Other quantities follow from sm, and sm from the processes. With --steps, one after another:
[{"for":"10s","values":{"sm":60}},{"values":{"sm":5}}].

Quantities: ` + strings.Join(model.QuantityNames(), ", "),
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return o.run(args[0], args[1:]) },
	}
	rootFlag(c, &o.root)
	c.Flags().DurationVar(&o.period, "for", 0, "how long; 0: until the next load")
	c.Flags().StringVar(&o.file, "steps", "", "file with steps as JSON, - for standard input, in place of values")
	c.Flags().BoolVar(&o.repeat, "repeat", false, "begin again after the last step")
	return c
}

func (o *loadOptions) run(device string, values []string) error {
	script, err := o.script(values)
	if err != nil {
		return err
	}
	uuid, err := o.uuid(device)
	if err != nil {
		return err
	}
	_, err = send(o.root, daemon.Command{Work: &daemon.Work{UUID: uuid, Script: script}})
	return err
}

func (o *loadOptions) script(values []string) (model.Script, error) {
	script := model.Script{Repeat: o.repeat}
	switch {
	case o.file != "" && len(values) > 0:
		return script, fmt.Errorf("reading the load: --steps and values exclude each other")
	case o.file != "":
		text, err := readSteps(o.file)
		if err != nil {
			return script, fmt.Errorf("reading the steps: %w", err)
		}
		if err := json.Unmarshal(text, &script.Steps); err != nil {
			return script, fmt.Errorf("reading the steps in %s: %w", o.file, err)
		}
		return script, nil
	case len(values) == 0:
		return script, nil
	}
	step := model.Step{For: o.period, Values: map[model.Quantity]float64{}}
	for _, value := range values {
		name, text, _ := strings.Cut(value, "=")
		quantity, err := model.ParseQuantity(name)
		if err != nil {
			return script, err
		}
		if step.Values[quantity], err = strconv.ParseFloat(text, 64); err != nil {
			return script, fmt.Errorf("reading %s: want a form such as %s=60", value, name)
		}
	}
	script.Steps = []model.Step{step}
	return script, nil
}

func readSteps(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}

// uuid finds a GPU by its number in PCI order, and returns a UUID unchanged.
func (o *loadOptions) uuid(device string) (string, error) {
	ordinal, err := strconv.Atoi(device)
	if err != nil {
		return device, nil //nolint:nilerr // it is a UUID
	}
	result, err := send(o.root, daemon.Command{State: true})
	if err != nil {
		return "", err
	}
	if ordinal < 0 || ordinal >= len(result.State.GPUs) {
		return "", fmt.Errorf("setting the load of GPU %d: the node has %d GPUs", ordinal, len(result.State.GPUs))
	}
	return result.State.GPUs[ordinal].UUID, nil
}
