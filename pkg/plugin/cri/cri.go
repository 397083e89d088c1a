// Package cri asks the container runtime of the node, over CRI, for its version, whether it applies CDI specs, whether crun starts
// containers, and whether a container has started.
package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/version"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prism-gpu/prism/pkg/hostfs"
)

// timeout limits one call.
const timeout = 10 * time.Second

// oldest are the first versions of runtimes that can read the CDI specs of claims, which use CDI 0.6.0 at most.
var oldest = map[string]string{"containerd": "1.7.0", "cri-o": "1.28.0"}

// Client asks the runtime of a host.
type Client struct {
	// HostRoot is the host's root directory as this process sees it. Socket is the host's path of the runtime's socket; empty: the first
	// existing one of the usual sockets.
	HostRoot, Socket string
}

// Start identifies the runtime's present start: each start creates the socket again. Empty: no runtime serves.
func (c Client) Start() string {
	path, err := hostfs.New(c.HostRoot).RuntimeSocket(c.Socket)
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d", info.ModTime().UnixNano())
}

// call makes calls to the runtime, with one deadline.
func (c Client) call(ctx context.Context, use func(context.Context, api.RuntimeServiceClient) error) error {
	path, err := hostfs.New(c.HostRoot).RuntimeSocket(c.Socket)
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := use(ctx, api.NewRuntimeServiceClient(connection)); err != nil {
		return fmt.Errorf("asking the container runtime at %s: %w", path, err)
	}
	return nil
}

// CDIProblem asks the runtime why it does not apply the CDI specs in a directory of the host; empty if it reports no problem. Only
// containerd reports whether CDI is on, and which directories it reads.
func (c Client) CDIProblem(ctx context.Context, dir string) (problem string, err error) {
	known, config, err := c.configured(ctx)
	if err != nil {
		return "", err
	}
	return c.problem(known.RuntimeName, known.RuntimeVersion, config, dir), nil
}

// configured asks the runtime for its version, and for its configuration in JSON; empty if it does not report one.
func (c Client) configured(ctx context.Context) (known *api.VersionResponse, config string, err error) {
	err = c.call(ctx, func(ctx context.Context, runtime api.RuntimeServiceClient) (err error) {
		if known, err = runtime.Version(ctx, &api.VersionRequest{}); err != nil {
			return err
		}
		status, err := runtime.Status(ctx, &api.StatusRequest{Verbose: true})
		config = status.GetInfo()["config"]
		return err
	})
	return known, config, err
}

// Crun asks the runtime whether crun starts the containers of a handler; empty is the default handler. containerd reports the program of
// each handler. CRI-O does not: crun is assumed to start its containers, except for a handler with the name runc.
func (c Client) Crun(ctx context.Context, handler string) (bool, error) {
	known, config, err := c.configured(ctx)
	if err != nil {
		return false, err
	}
	if strings.EqualFold(known.RuntimeName, "cri-o") {
		return handler != "runc", nil
	}
	var set struct {
		Containerd struct {
			DefaultRuntimeName string `json:"defaultRuntimeName"`
			Runtimes           map[string]struct {
				Options struct{ BinaryName string } `json:"options"`
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	if config == "" {
		return false, nil
	}
	if err := json.Unmarshal([]byte(config), &set); err != nil {
		return false, fmt.Errorf("reading the OCI runtime of a handler in the configuration of %s %s: %w", known.RuntimeName, known.RuntimeVersion, err)
	}
	program := set.Containerd.Runtimes[cmp.Or(handler, set.Containerd.DefaultRuntimeName)].Options.BinaryName
	// Builds of crun with more features are called crun-wasm and alike.
	name, _, _ := strings.Cut(filepath.Base(program), "-")
	return name == "crun", nil
}

// problem returns the problem that the runtime's answers show.
func (c Client) problem(name, number, config, dir string) string {
	is := name + " " + number
	if least := oldest[strings.ToLower(name)]; least != "" {
		if v, err := version.ParseGeneric(number); err == nil && v.LessThan(version.MustParseGeneric(least)) {
			return fmt.Sprintf("%s does not read the CDI specs of claims: upgrade to %s or later", is, least)
		}
	}
	var set map[string]json.RawMessage
	if json.Unmarshal([]byte(config), &set) != nil {
		return ""
	}
	if string(set["enableCDI"]) == "false" {
		return fmt.Sprintf("CDI is off in %s: set enable_cdi = true in its configuration, and restart it", is)
	}
	var dirs []string
	if json.Unmarshal(set["cdiSpecDirs"], &dirs) != nil || slices.ContainsFunc(dirs, func(d string) bool { return c.same(d, dir) }) {
		return ""
	}
	return fmt.Sprintf("%s reads CDI specs in %q,but the CDI specs of claims are in %s: add it to cdi_spec_dirs in its configuration and restart it, or set "+
		"--cdi-root (chart value cdiRoot)", is, dirs, dir)
}

// same reports whether two paths lead to the same directory of the host: /var/run is a link on most hosts.
func (c Client) same(a, b string) bool {
	host := hostfs.New(c.HostRoot)
	x, errX := host.Resolve(a)
	y, errY := host.Resolve(b)
	return errX == nil && errY == nil && x == y
}

// Labels that kubelets set on containers.
const (
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelContainer = "io.kubernetes.container.name"
)

// Started reports whether the container with that name was created after the given time and its process has started.
func (c Client) Started(ctx context.Context, namespace, pod, container string, after time.Time) (started bool, err error) {
	err = c.call(ctx, func(ctx context.Context, runtime api.RuntimeServiceClient) error {
		listed, err := runtime.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{
			LabelSelector: map[string]string{labelNamespace: namespace, labelPod: pod, labelContainer: container},
		}})
		if err != nil {
			return err
		}
		for _, one := range listed.Containers {
			if one.CreatedAt <= after.UnixNano() {
				continue
			}
			// A container whose hook failed has also exited, but was never started.
			status, err := runtime.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: one.Id})
			if err != nil {
				return err
			}
			started = started || status.GetStatus().GetStartedAt() > 0
		}
		return nil
	})
	return started, err
}

// PodOf returns namespace and name of the pod of a container; empty if the runtime does not have the container.
func (c Client) PodOf(ctx context.Context, container string) (namespace, name string, err error) {
	err = c.call(ctx, func(ctx context.Context, runtime api.RuntimeServiceClient) error {
		listed, err := runtime.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{Id: container}})
		for _, one := range listed.GetContainers() {
			namespace, name = one.GetLabels()[labelNamespace], one.GetLabels()[labelPod]
		}
		return err
	})
	return namespace, name, err
}
