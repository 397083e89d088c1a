package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// nodeName is the name of the only node.
const nodeName = "n0"

// onNode returns a command line that runs in the node's namespaces.
func (c *cluster) onNode(args ...string) []string {
	return c.localcluster(append([]string{"exec", nodeName}, args...)...)
}

// simgpu returns a command line for the node's simulated hardware.
func (c *cluster) simgpu(args ...string) []string {
	return c.onNode(append([]string{filepath.Join(c.root, "bin/simgpu")}, args...)...)
}

// board is a GPU as the hardware reports it.
type board struct {
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	Minor   int    `json:"minor"`
	PCI     string `json:"pci"`
}

// boardMode is the compute mode of a GPU, as the hardware numbers the modes.
type boardMode struct {
	Ordinal     int    `json:"ordinal"`
	UUID        string `json:"uuid"`
	ComputeMode int    `json:"computeMode"`
}

// hardware describes the GPUs of the node independently of the product.
type hardware struct {
	Driver struct {
		Version string `json:"version"`
		Loaded  bool   `json:"loaded"`
	} `json:"driver"`
	GPUs []board `json:"gpus"`
}

func (c *cluster) hardware() (hardware, error) {
	var h hardware
	out, err := c.run("", c.simgpu("state")...)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal([]byte(out), &h); err != nil {
		return h, fmt.Errorf("reading the state of the simulated GPUs: %w", err)
	}
	return h, nil
}

// boards lists the node's GPUs by UUID.
func (c *cluster) boards() (map[string]board, error) {
	h, err := c.hardware()
	byUUID := map[string]board{}
	for _, b := range h.GPUs {
		byUUID[b.UUID] = b
	}
	return byUUID, err
}

// numbers are the major and minor numbers of a character device.
type numbers struct{ major, minor uint32 }

// nodeDevices returns the driver's device nodes on the node by path, including nodes of GPUs.
func (c *cluster) nodeDevices(t *testing.T) map[string]numbers {
	t.Helper()
	root := c.variable("PRISM_NODE_0_ROOT")
	paths, err := filepath.Glob(filepath.Join(root, "dev/nvidia*"))
	require.NoError(t, err)
	found := map[string]numbers{}
	for _, path := range paths {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		stat, ok := info.Sys().(*syscall.Stat_t)
		if ok && info.Mode()&fs.ModeCharDevice != 0 {
			found[strings.TrimPrefix(path, root)] = numbers{unix.Major(stat.Rdev), unix.Minor(stat.Rdev)}
		}
	}
	return found
}

// kept lists the files of claims on the node: the plugin's records and the CDI specs, including metadata files.
func (c *cluster) kept() ([]string, error) {
	var files []string
	for _, driver := range []string{driverName, nvidiaDriver} {
		for _, pattern := range []string{
			filepath.Join(c.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driver, "claims/*"),
			filepath.Join(c.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driver, "dra-device-metadata/*"),
			filepath.Join(c.variable("PRISM_NODE_0_CDI"), "*"+driver+"*"),
		} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		}
	}
	return files, nil
}

// claimFiles is the number of files and folders on the node for a prepared claim with one request: its record, its CDI spec, and its device
// metadata with the CDI spec that mounts them.
const claimFiles = 4

// keptFor lists the files of one claim on the node.
func (c *cluster) keptFor(uid, namespace string) ([]string, error) {
	files, err := c.kept()
	if err != nil {
		return nil, err
	}
	var its []string
	for _, file := range files {
		name := filepath.Base(file)
		if strings.Contains(name, uid) || strings.HasPrefix(name, namespace+"_") {
			its = append(its, file)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EISDIR) {
			return nil, err
		}
		if strings.Contains(string(text), `"namespace":"`+namespace+`"`) {
			its = append(its, file)
		}
	}
	return its, nil
}
