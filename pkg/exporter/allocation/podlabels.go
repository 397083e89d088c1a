package allocation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/grpcread"
)

// maxLabelValue is the maximum length of a label value in Kubernetes, in bytes. Longer values are ignored.
const maxLabelValue = 63

const criListSandboxes = "/runtime.v1.RuntimeService/ListPodSandbox"

// Numbers of fields in k8s.io/cri-api/pkg/apis/runtime/v1.
const (
	criSandboxes                                            = 1
	criSandboxMetadata, criSandboxCreated, criSandboxLabels = 2, 4, 5
	criMetadataName, criMetadataUID, criMetadataNamespace   = 1, 2, 3
)

// podLabels are selected labels of the pods with claims. Kubelets copy a pod's labels to its sandbox, so they are the labels at the start
// of the pod.
type podLabels struct {
	// keys are the keys of the labels. If empty, the runtime is not queried.
	keys    []string
	socket  runtimeSocket
	sources *sources
	// due is used by one caller of read at a time.
	due backoff.Backoff

	mu sync.Mutex
	// values are by the UID of the pod, in the order of the keys. The map is replaced, never modified.
	values map[string][]string
	// listed are the names of these pods.
	listed map[podName]bool
}

// podName names a pod.
type podName struct{ namespace, name string }

// known returns the values of the labels of each pod, by its UID.
func (p *podLabels) known() map[string][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values
}

// lacks reports whether the labels of a container's pod are unknown. The pod's UID of a container that does not run is unknown: its pod is
// queried once.
func (p *podLabels) lacks(n name, of container) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of.podUID == "" {
		return !p.listed[podName{n.namespace, n.pod}]
	}
	return p.values[of.podUID] == nil
}

// take stores a list, and reports whether it contains a new pod.
func (p *podLabels) take(found labelled) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range found.values {
		more = more || p.values[uid] == nil
	}
	p.values, p.listed = found.values, found.pods
	return more
}

// read queries the runtime for the labels of the pods of these containers, if some are unknown, and reports whether it listed the pods.
// Lists without a new pod become less and less frequent.
func (p *podLabels) read(ctx context.Context, names []name, containers map[name]container) bool {
	if len(p.keys) == 0 {
		return false
	}
	if !slices.ContainsFunc(names, func(n name) bool { return p.lacks(n, containers[n]) }) {
		p.sources.note(SourcePodLabels, nil)
		return false
	}
	if !p.due.Due(time.Now()) {
		return false
	}
	pods := map[podName]bool{}
	for _, n := range names {
		pods[podName{n.namespace, n.pod}] = true
	}
	found, err := p.list(ctx, pods)
	if ctx.Err() != nil {
		return false
	}
	p.sources.note(SourcePodLabels, err)
	if err == nil && p.take(found) {
		p.due.Reset()
	}
	p.due.Defer(time.Now())
	return err == nil
}

// labelled are pods with their labels, and their names.
type labelled struct {
	values map[string][]string
	pods   map[podName]bool
}

// list returns the labels of the pods with these names, from the runtime's list of all pods.
func (p *podLabels) list(ctx context.Context, pods map[podName]bool) (labelled, error) {
	path, err := p.socket.path()
	if err != nil {
		return labelled{}, err
	}
	found, created := labelled{map[string][]string{}, map[podName]bool{}}, map[string]int64{}
	err = p.socket.client(path).Call(ctx, criListSandboxes, func(f grpcread.Field) error {
		if f.Number != criSandboxes {
			return nil
		}
		one := sandbox{values: make([]string, len(p.keys))}
		err := f.Each(func(f grpcread.Field) error { return one.read(f, p.keys) })
		// A pod whose sandbox was recreated has several.
		if pods[one.pod] && one.uid != "" && (found.values[one.uid] == nil || one.created > created[one.uid]) {
			found.values[one.uid], created[one.uid], found.pods[one.pod] = one.values, one.created, true
		}
		return err
	})
	if err != nil {
		return labelled{}, fmt.Errorf("listing pod labels of the container runtime at %s: %w", path, err)
	}
	return found, nil
}

// sandbox is a listed sandbox with the labels of its pod.
type sandbox struct {
	pod     podName
	uid     string
	created int64
	// values are in the order of the keys, empty if the pod does not set the label.
	values []string
}

// read reads a field of a sandbox.
func (s *sandbox) read(f grpcread.Field, keys []string) error {
	switch f.Number {
	case criSandboxMetadata:
		return f.Each(func(f grpcread.Field) error {
			into := map[int]*string{criMetadataName: &s.pod.name, criMetadataUID: &s.uid, criMetadataNamespace: &s.pod.namespace}[f.Number]
			if into == nil {
				return nil
			}
			text, err := f.Text()
			*into = string(text)
			return err
		})
	case criSandboxCreated:
		s.created = int64(f.Value) //nolint:gosec // a protobuf int64 is sent like this
	case criSandboxLabels:
		return readLabel(f, func(key []byte) (into *string, limit int) {
			if i := slices.Index(keys, string(key)); i >= 0 {
				return &s.values[i], maxLabelValue
			}
			return nil, 0
		})
	}
	return nil
}
