package plugin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/maintenance"
)

// sessionPrograms are the programs of the release that close their sessions for a release.
var sessionPrograms = []string{"prism-exporter", "prism-kubelet-plugin"}

// mostPods bounds the containers of which the runtime is asked for the pod.
const mostPods = 32

// gpuClients finds the processes that have a GPU open.
type gpuClients struct {
	holders func(ctx context.Context, device string) ([]hostfs.Holder, error)
	podOf   func(ctx context.Context, container string) (namespace, name string, err error)
	// namespace is the namespace of the release; empty if it is not known.
	namespace string
}

// releaseNamespace is the namespace of the release.
func releaseNamespace(cfg *config.Plugin) string {
	namespace, _, _ := strings.Cut(cfg.Release, "/")
	return namespace
}

// of lists the processes with pods, without the programs of the release that close their sessions: a program of a tenant with such a name is
// in another namespace.
func (c gpuClients) of(ctx context.Context, g *gpu.GPU) ([]maintenance.Client, error) {
	holders, err := c.holders(ctx, g.DeviceNode())
	if err != nil {
		return nil, err
	}
	type pod struct{ namespace, name string }
	pods := map[string]pod{}
	var clients []maintenance.Client
	for i := range holders {
		h := &holders[i]
		at, asked := pods[h.Container]
		if !asked && h.Container != "" && len(pods) < mostPods {
			at.namespace, at.name, _ = c.podOf(ctx, h.Container) // else its UID says which pod it is
			pods[h.Container] = at
		}
		if slices.Contains(sessionPrograms, h.Program) && (at.namespace == "" || at.namespace == c.namespace) {
			continue
		}
		client := maintenance.Client{PID: h.PID, Command: cmp.Or(h.Command, h.Program), Pod: h.PodUID}
		if at.name != "" {
			client.Pod = at.namespace + "/" + at.name
		}
		clients = append(clients, client)
	}
	return clients, nil
}
