package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/test/simgpu/bundle"
	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

type createOptions struct {
	paths   layout.Paths
	boards  []string
	count   int
	minors  []int
	mig     []int
	driver  string
	name    string
	state   string
	hold    string
	bundle  string
	sandbox bool
}

func createCommand() *cobra.Command {
	o := &createOptions{paths: layout.Node(defaultRoot)}
	c := &cobra.Command{
		Use:   "create",
		Short: "make this node a GPU node, and return when its driver answers",
		Long: `Make this node a GPU node: driver files, device nodes, /proc and /sys entries,
and a daemon that answers NVML calls. Run it inside a node's namespaces, or
with --sandbox to keep everything below --root.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	rootFlag(c, &o.paths.Root)
	f.StringSliceVar(&o.boards, "model", []string{"h100-80"}, "board of the GPUs (one of "+strings.Join(model.BoardIDs(), ", ")+"), or one for each GPU")
	f.IntVar(&o.count, "count", 0, "number of GPUs of a single --model (default 8)")
	f.IntSliceVar(&o.minors, "minors", nil, "minor number of each GPU (default 0, 1, …)")
	f.IntSliceVar(&o.mig, "mig", nil, "GPUs of Ampere whose MIG mode is on at boot, in PCI order (default: as kept in --state)")
	f.StringVar(&o.driver, "driver", "", "driver version (default: as kept in --state, else "+model.DefaultDriver.String()+")")
	f.StringVar(&o.name, "name", "", "name of the node, from which UUIDs come (default: the host name)")
	f.StringVar(&o.state, "state", "", "file for the state that survives a reboot (default: simgpu.json in $NODE_STATE, if set)")
	f.StringVar(&o.bundle, "bundle", "", "built driver bundle (default: built when missing, in the user cache directory)")
	f.StringVar(&o.hold, "sample-hold", "", "how long a sample of GPM holds its GPU instance: until free or shutdown (default: as kept in --state, else free)")
	f.BoolVar(&o.sandbox, "sandbox", false, "keep devices, proc and sys below --root; changes nothing else")
	f.StringVar(&o.paths.Dev, "dev", o.paths.Dev, "directory for device nodes")
	f.StringVar(&o.paths.ProcDriver, "proc-driver", o.paths.ProcDriver, "directory that stands for /proc/driver/nvidia")
	f.StringVar(&o.paths.PCI, "pci", o.paths.PCI, "directory that stands for /sys/bus/pci/devices")
	f.StringVar(&o.paths.ProcDevices, "proc-devices", o.paths.ProcDevices, "file that stands for /proc/devices")
	return c
}

func (o *createOptions) run(c *cobra.Command) error {
	spec, err := o.spec()
	if err != nil {
		return err
	}
	if err := o.placePaths(); err != nil {
		return err
	}
	node, err := model.New(spec)
	if err != nil {
		return err
	}
	if err := o.paths.Check(); err != nil {
		return err
	}
	if err := clearLeftover(o.paths); err != nil {
		return err
	}
	bundleDir, err := ensureBundle(c.Context(), o.bundle, node.Spec().Driver)
	if err != nil {
		return err
	}
	install, err := layout.Create(o.paths, node, bundleDir)
	if err != nil {
		return err
	}
	install.State = o.state
	if err := errors.Join(keepState(o.state, node.Spec()), install.Save(), startDaemon(o.paths)); err != nil {
		return errors.Join(err, install.Remove())
	}
	fmt.Fprintf(c.OutOrStdout(), "node %s: %s, driver %s, below %s\n", spec.Name, describe(node), node.Spec().Driver, o.paths.Root)
	return nil
}

// spec merges flags with the stored state of an earlier boot.
func (o *createOptions) spec() (model.Spec, error) {
	if err := o.placeState(); err != nil {
		return model.Spec{}, err
	}
	kept, err := keptState(o.state)
	if err != nil {
		return model.Spec{}, err
	}
	if o.name == "" {
		o.name = kept.Name
	}
	if o.name == "" {
		if o.name, err = os.Hostname(); err != nil {
			return model.Spec{}, fmt.Errorf("naming the node: %w (set --name)", err)
		}
	}
	boards, err := o.boardList()
	if err != nil {
		return model.Spec{}, err
	}
	spec := model.Spec{Name: o.name, Driver: model.DriverVersion(o.driver), Boards: boards, Minors: o.minors, MIG: o.mig, SampleHold: model.SampleHold(o.hold)}
	if slices.Equal(boards, kept.Boards) {
		spec.Replaced = kept.Replaced
		if o.mig == nil {
			spec.MIG = kept.MIG
		}
	}
	if spec.Driver == "" {
		spec.Driver = kept.Driver
	}
	if spec.SampleHold == "" {
		spec.SampleHold = kept.SampleHold
	}
	return spec, nil
}

// placeState makes the path of the state file absolute, because the daemon runs in another working directory.
func (o *createOptions) placeState() error {
	if o.state == "" && os.Getenv("NODE_STATE") != "" {
		o.state = filepath.Join(os.Getenv("NODE_STATE"), "simgpu.json")
	}
	if o.state == "" {
		return nil
	}
	state, err := filepath.Abs(o.state)
	if err != nil {
		return fmt.Errorf("finding --state: %w", err)
	}
	o.state = state
	return nil
}

// boardList returns the board of each GPU.
func (o *createOptions) boardList() ([]string, error) {
	if len(o.boards) == 1 {
		if o.count == 0 {
			o.count = 8
		}
		return model.Uniform(o.name, o.boards[0], o.count).Boards, nil
	}
	if o.count != 0 && o.count != len(o.boards) {
		return nil, fmt.Errorf("counting GPUs: --count %d but --model names %d boards", o.count, len(o.boards))
	}
	return o.boards, nil
}

func (o *createOptions) placePaths() error {
	root, err := filepath.Abs(o.paths.Root)
	if err != nil {
		return fmt.Errorf("finding --root: %w", err)
	}
	o.paths.Root = root
	if o.sandbox {
		o.paths = layout.Sandbox(root)
	}
	return nil
}

// clearLeftover removes the files of a node whose daemon was killed; a running node is an error.
func clearLeftover(paths layout.Paths) error {
	old, err := layout.Open(paths.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := daemon.Send(old.Paths, daemon.Command{State: true}); err == nil {
		return fmt.Errorf("creating a GPU node at %s: one is running already (simgpu destroy --root %s stops it)", paths.Root, paths.Root)
	}
	return old.Remove()
}

func describe(node *model.Node) string {
	counts := map[string]int{}
	var order []string
	for _, board := range node.Boards() {
		if counts[board.Product.Name] == 0 {
			order = append(order, board.Product.Name)
		}
		counts[board.Product.Name]++
	}
	for i, name := range order {
		order[i] = fmt.Sprintf("%d × %s", counts[name], name)
	}
	if len(order) == 0 {
		return "no GPU"
	}
	return strings.Join(order, ", ")
}

func ensureBundle(ctx context.Context, given string, driver model.DriverVersion) (string, error) {
	dir := given
	if dir == "" {
		var err error
		if dir, err = bundle.CacheDir(); err != nil {
			return "", err
		}
	}
	return bundle.Ensure(ctx, dir, driver)
}

func keptState(file string) (model.Spec, error) {
	var spec model.Spec
	if file == "" {
		return spec, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return spec, nil
	}
	if err != nil {
		return spec, fmt.Errorf("reading the stored state of the node: %w", err)
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return spec, fmt.Errorf("reading the stored state of the node in %s: %w (remove the file to reset it)", file, err)
	}
	return spec, nil
}

func keepState(file string, spec model.Spec) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("storing the state of the node: %w", err)
	}
	// A power cut must not leave a truncated file.
	next := file + ".new"
	err = os.WriteFile(next, append(text, '\n'), 0o644)
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return fmt.Errorf("storing the state of the node: %w", err)
	}
	return nil
}

// startDaemon starts "simgpu serve" in its own session and waits until it reports that it listens.
func startDaemon(paths layout.Paths) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	log, err := os.Create(paths.Log())
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	defer log.Close()
	ready, status, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	defer ready.Close()
	command := exec.Command(self, "serve", "--root", paths.Root)
	command.Dir = "/"
	command.Stderr = log
	command.ExtraFiles = []*os.File{status}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = command.Start()
	status.Close()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != readyLine {
		text, _ := os.ReadFile(paths.Log())
		return errors.Join(fmt.Errorf("starting the daemon: %s", strings.TrimSpace(string(text))), command.Wait())
	}
	return command.Process.Release()
}
