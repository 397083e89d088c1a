package validation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Device is a device that CUDA sees.
type Device struct{ UUID, Name string }

// CUDA is the CUDA driver of the container. Its errors contain the name of the failed function and its code.
type CUDA interface {
	// Init loads the library and initializes it, and returns its version.
	Init() (version string, err error)
	Devices() ([]Device, error)
	// Context creates a context on a device, allocates and frees memory in it, and destroys it.
	Context(device int, bytes uint64) error
}

// allocation is the amount of memory that is allocated on each device. The smallest share has more.
const allocation = 16 << 20

// Options are the options of a validation.
type Options struct {
	CUDA CUDA
	// Root is the root directory of the container.
	Root string
	// UUIDs are the UUIDs of the claim; nil: they are read from the device metadata of the container, if there is any.
	UUIDs []string
	// Timeout limits each check: a call into a failed GPU may never return.
	Timeout time.Duration
	// Report is called after each check.
	Report func(Check)
}

// Run runs the checks in their order, up to the first failed one.
func Run(o Options) *Result {
	result := &Result{}
	devices := 0
	for _, check := range []struct {
		name string
		run  func() (string, error)
	}{
		{"device nodes", func() (string, error) { return nodes(o.Root) }},
		{"cuInit", func() (string, error) {
			version, err := o.CUDA.Init()
			return "CUDA " + version, err
		}},
		{"GPUs", func() (string, error) {
			found, err := o.gpus(result)
			devices = len(result.UUIDs)
			return found, err
		}},
		{"memory", func() (string, error) { return o.memory(devices) }},
	} {
		c := Check{Name: check.name}
		found, err := within(o.Timeout, check.run)
		if err != nil {
			c.Failed = err.Error()
		} else {
			c.Found = found
		}
		result.Checks = append(result.Checks, c)
		o.Report(c)
		if err != nil {
			break
		}
	}
	return result
}

// within runs a check with a deadline. After the deadline the check goes on in the background, and the program exits.
func within(limit time.Duration, check func() (string, error)) (string, error) {
	type outcome struct {
		found string
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		found, err := check()
		done <- outcome{found, err}
	}()
	select {
	case o := <-done:
		return o.found, o.err
	case <-time.After(limit):
		return "", fmt.Errorf("no answer of the driver within %s: the GPU hangs; reset it, or restart the node", limit)
	}
}

// nodes opens the device nodes of the container. Capabilities of MIG devices can only be read.
func nodes(root string) (string, error) {
	var opened []string
	for _, kind := range []struct {
		pattern string
		flags   int
	}{
		{"dev/nvidia[0-9]*", os.O_RDWR}, {"dev/nvidiactl", os.O_RDWR}, {"dev/nvidia-uvm", os.O_RDWR}, {"dev/nvidia-caps/nvidia-cap[0-9]*", os.O_RDONLY},
	} {
		paths, err := filepath.Glob(filepath.Join(root, kind.pattern))
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			file, err := os.OpenFile(path, kind.flags, 0)
			switch {
			case err == nil:
				_ = file.Close()
			case errors.Is(err, syscall.ENXIO): // the container may open it; cuInit reports a driver that does not answer
			default:
				return "", fmt.Errorf("%w: correct the mode of the device node on the host; with the driver's defaults every user can open it", err)
			}
			opened = append(opened, "/"+strings.TrimPrefix(strings.TrimPrefix(path, root), "/"))
		}
	}
	if len(opened) == 0 || !gpuNode.MatchString(opened[0]) {
		return "", errors.New("the container has no device node of a GPU: turn CDI on in the configuration of the container runtime, and restart the runtime")
	}
	return strings.Join(opened, " "), nil
}

// gpuNode is the device node of a GPU.
var gpuNode = regexp.MustCompile(`^/dev/nvidia[0-9]+$`)

// gpus compares the devices that CUDA sees with the claim.
func (o Options) gpus(result *Result) (string, error) {
	seen, err := o.CUDA.Devices()
	if err != nil {
		return "", err
	}
	var all []string
	for _, d := range seen {
		result.UUIDs = append(result.UUIDs, d.UUID)
		all = append(all, fmt.Sprintf("%s (%s)", d.UUID, d.Name))
	}
	claim := o.UUIDs
	if claim == nil {
		if claim, err = metadata(o.Root); err != nil {
			return "", err
		}
	}
	if len(claim) > 0 {
		if different := Different(claim, result.UUIDs); different != "" {
			return "", fmt.Errorf("%s: check that no other component adds GPUs to containers, such as NVIDIA's device plugin", different)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", "), nil
}

// memory creates a context on each device and allocates memory in it.
func (o Options) memory(devices int) (string, error) {
	for i := range devices {
		if err := o.CUDA.Context(i, allocation); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d MiB allocated and freed on each device", allocation>>20), nil
}
