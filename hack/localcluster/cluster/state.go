//go:build linux

// Package cluster starts, inspects and removes clusters. A cluster is a network namespace with a control plane and, for each node, a set of
// namespaces that appear as a machine. All its files are in one folder.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/prism-gpu/prism/hack/localcluster/node"
	"github.com/prism-gpu/prism/hack/localcluster/parts"
	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// Settings are the settings of a cluster at its creation.
type Settings struct {
	Kubernetes   string   `json:"kubernetes"`
	Nodes        int      `json:"nodes"`
	BootCommands []string `json:"bootCommands,omitempty"`
	// KubeletConfig are additional fields of the configuration of every kubelet.
	KubeletConfig []string `json:"kubeletConfig,omitempty"`
	// Port is the loopback port of the API server on the host.
	Port int `json:"port"`
}

// Cluster is a name and its folders.
type Cluster struct {
	Name  string
	Root  string // the folder of all clusters
	Dir   string // the folder of this one
	Cache parts.Cache
}

// ErrNotThere means that no cluster of this name was started, or that it was removed.
var ErrNotThere = errors.New("no such cluster")

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Open finds the folders of a cluster. It does not check whether the cluster exists.
func Open(name string) (*Cluster, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("cluster name %q: want 1 to 20 lower-case letters, digits and inner dashes", name)
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("finding the state directory: %w: set HOME or XDG_STATE_HOME", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	cache, err := parts.OpenCache()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(base, "prism")
	c := &Cluster{Name: name, Root: root, Dir: filepath.Join(root, name), Cache: cache}
	if longest := c.machine(node.MaxNodes-1, Settings{}).Control(); len(longest) > supervise.MaxSocketPath {
		return nil, fmt.Errorf("path %s is too long for a socket: set XDG_STATE_HOME to a shorter one", longest)
	}
	return c, nil
}

// Load reads the settings; ErrNotThere if the cluster does not exist.
func (c *Cluster) Load() (Settings, error) {
	var s Settings
	text, err := os.ReadFile(c.settingsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w: %s: start it with `localcluster up --name %s`", ErrNotThere, c.Name, c.Name)
	}
	if err != nil {
		return s, fmt.Errorf("reading the settings of cluster %s: %w", c.Name, err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the settings of cluster %s: %w: run `localcluster down --name %s`", c.Name, err, c.Name)
	}
	return s, nil
}

func (c *Cluster) save(s Settings) error {
	if err := writeJSON(c.settingsFile(), s); err != nil {
		return fmt.Errorf("writing the settings of cluster %s: %w", c.Name, err)
	}
	return nil
}

// writeJSON replaces the whole file.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (c *Cluster) settingsFile() string { return filepath.Join(c.Dir, "cluster.json") }
func (c *Cluster) pki() string          { return filepath.Join(c.Dir, "pki") }

// programs is a folder of links to the programs in the versions of this cluster.
func (c *Cluster) programs() string { return filepath.Join(c.Dir, "bin") }

// Program returns the path of a program that the cluster runs.
func (c *Cluster) Program(name string) string { return filepath.Join(c.programs(), name) }

// Kubeconfig returns the path of the administrator's kubeconfig, for use on the host.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "admin.kubeconfig") }

// namespace is the network namespace of the control plane. The name of a cluster cannot contain an underscore, so the names of two
// clusters' namespaces cannot collide.
func (c *Cluster) namespace() string { return "prism-" + c.Name }

func (c *Cluster) nodeNamespace(i int) string { return c.namespace() + "_" + node.Name(i) }

// group is the control group of the whole cluster.
func (c *Cluster) group() string { return filepath.Join(groupRoot, c.Name) }

const groupRoot = "/prism"

func (c *Cluster) machine(i int, s Settings) node.Machine {
	return node.Machine{
		Cluster: c.Name, Name: node.Name(i), Index: i, Dir: filepath.Join(c.Dir, node.Name(i)), Programs: c.programs(),
		CNI: c.Cache.Part(cniRecipe()), BootCommands: s.BootCommands, KubeletConfig: s.KubeletConfig,
	}
}

func cniRecipe() parts.Recipe {
	for _, r := range parts.Table(parts.KubernetesVersion) {
		if r.Name == "cni" {
			return r
		}
	}
	return parts.Recipe{}
}
