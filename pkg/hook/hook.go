package hook

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// The subcommands.
const (
	// Exclusive fails a container that uses another device besides the named one, or whose own /dev/shm is too small.
	Exclusive = "exclusive"
	// MemoryLimit asks the plugin to limit the GPU memory of the container, and fails the container without the limit.
	MemoryLimit = "memory-limit"
	// Injected creates a file that shows the plugin that the runtime applies CDI specs.
	Injected = "injected"
)

// programName is the file name of the program in every directory of installations.
const programName = "prism-hook"

// Program is prism-hook with its environment.
type Program struct {
	// Stdin contains the OCI state of the container.
	Stdin io.Reader
	// Parent is the parent of this process, in its own pid namespace.
	Parent int
	// Proc is the mount of proc.
	Proc string
	// RetryBudget is the time for retries to connect to the socket of the plugin, Pause the time between two attempts.
	RetryBudget, Pause time.Duration
}

// Run executes a subcommand. The error is one sentence, which the runtime shows in the events of the pod.
func (p Program) Run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no subcommand; supported values: %s, %s, %s, %s", Exclusive, Injected, MemoryLimit, Profile)
	}
	switch args[0] {
	case Exclusive:
		client, err := parseClient(args[1:])
		if err != nil {
			return err
		}
		return p.exclusive(client)
	case Injected:
		flags := newFlags(args[0])
		file := flags.String("file", "", "file to create")
		if err := parse(flags, args[1:]); err != nil {
			return err
		}
		injected(*file)
		return nil
	case MemoryLimit:
		limit, err := parseLimit(args[1:])
		if err != nil {
			return err
		}
		return p.memoryLimit(limit)
	case Profile:
		return p.profile(args[1:])
	}
	return fmt.Errorf("unknown subcommand %q; supported values: %s, %s, %s, %s", args[0], Exclusive, Injected, MemoryLimit, Profile)
}

func newFlags(subcommand string) *flag.FlagSet {
	flags := flag.NewFlagSet(subcommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// limit contains the arguments of memory-limit.
type limit struct {
	socket string
	protocol.LimitedDevice
}

// flags adds flags for the fields to a subcommand.
func (l *limit) flags(flags *flag.FlagSet) {
	flags.StringVar(&l.socket, "socket", "", "socket of the kubelet plugin")
	flags.StringVar(&l.Claim, "claim", "", "UID of the claim")
	flags.StringVar(&l.Device, "device", "", "name of the device in the CDI spec")
}

func parseLimit(args []string) (l limit, err error) {
	flags := newFlags(MemoryLimit)
	l.flags(flags)
	return l, parse(flags, args)
}

// parse reads the flags of a subcommand; all are required.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", flags.Name(), err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: unknown argument %q", flags.Name(), flags.Arg(0))
	}
	var missing error
	flags.VisitAll(func(f *flag.Flag) {
		if f.Value.String() == "" {
			missing = errors.Join(missing, fmt.Errorf("%s: -%s: required", flags.Name(), f.Name))
		}
	})
	return missing
}
