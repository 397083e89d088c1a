package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Limits of the inputs, in bytes.
const (
	maxState  = 1 << 20
	maxConfig = 16 << 20
	maxCgroup = 64 << 10
)

// state contains the fields of the OCI state of a container that the hook uses.
type state struct {
	Pid    int    `json:"pid"`
	Bundle string `json:"bundle"`
}

// state reads the OCI state.
func (p Program) state() (s state, err error) {
	raw, err := readAll(p.Stdin, maxState)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading the OCI state of the container on stdin: %w", err)
	}
	return s, nil
}

// config contains the fields of the OCI configuration of a container that the hook uses.
type config struct {
	Process struct {
		// Args are the program and arguments of the first process.
		Args []string `json:"args"`
		// Cwd is its working directory.
		Cwd string `json:"cwd"`
		// Env are the "NAME=value" pairs of the first process.
		Env []string `json:"env"`
	} `json:"process"`
	Root struct {
		// Path is the root of the container: absolute, or relative to the bundle.
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	} `json:"root"`
	// Annotations name the container and the pod.
	Annotations map[string]string `json:"annotations"`
	Mounts      []mount           `json:"mounts"`
	Hooks       struct {
		CreateRuntime []struct {
			Path string   `json:"path"`
			Args []string `json:"args"`
		} `json:"createRuntime"`
	} `json:"hooks"`
}

// mount is a mount of the container, in the runtime's order of mounts.
type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// identity names a container: its pod, and its first process.
type identity struct {
	pod, namespace, container string
	// process is the base name of the first process's program.
	process string
}

// identity reads the annotations of containerd and CRI-O.
func (c *config) identity() identity {
	i := identity{
		pod:       c.annotation("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
		namespace: c.annotation("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
		container: c.annotation("io.kubernetes.cri.container-name", "io.kubernetes.container.name"),
	}
	if len(c.Process.Args) > 0 {
		i.process = path.Base(c.Process.Args[0])
	}
	return i
}

// annotation returns the first of these annotations of the container, or an empty string.
func (c *config) annotation(names ...string) string {
	for _, name := range names {
		if value := c.Annotations[name]; value != "" {
			return value
		}
	}
	return ""
}

// readBundle reads config.json in the bundle. It opens nothing else in the bundle, and follows no link to it.
func readBundle(bundle string) (*config, error) {
	if !filepath.IsAbs(bundle) || filepath.Clean(bundle) != bundle {
		return nil, fmt.Errorf("the bundle of the OCI state must be an absolute path without \"..\", got %q", bundle)
	}
	const name = "config.json"
	// In a user namespace the hook may search the bundle, but not list it.
	dir, err := unix.Open(bundle, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the bundle %s: %w", bundle, err)
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s of the bundle %s: %w", name, bundle, err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	c, err := readConfig(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the bundle %s: %w", name, bundle, err)
	}
	return c, nil
}

func readConfig(file *os.File) (*config, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	raw, err := readAll(file, maxConfig)
	if err != nil {
		return nil, err
	}
	c := &config{}
	return c, json.Unmarshal(raw, c)
}

// readAll reads everything, up to a limit.
func readAll(from io.Reader, most int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("it is larger than %d bytes", most)
	}
	return raw, err
}
