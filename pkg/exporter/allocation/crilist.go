package allocation

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prism-gpu/prism/pkg/grpcread"
)

const criList = "/runtime.v1.RuntimeService/ListContainers"

// Numbers of fields in k8s.io/cri-api/pkg/apis/runtime/v1.
const (
	criContainers                          = 1
	criID, criState, criCreated, criLabels = 1, 6, 7, 8
	criLabelName, criLabelValue            = 1, 2
)

// listed is a container in the runtime's list. Runtimes also list annotations, which contain any part of a pod's specification that its
// author has written.
type listed struct {
	id      string
	exited  bool
	created int64
	name    name
	podUID  string
}

// list returns all containers of the runtime. Each one is kept: their number is the number of containers on the node.
func (s runtimeSocket) list(ctx context.Context) (all []listed, err error) {
	path, err := s.path()
	if err != nil {
		return nil, err
	}
	err = s.client(path).Call(ctx, criList, func(f grpcread.Field) error {
		if f.Number != criContainers {
			return nil
		}
		var one listed
		err := f.Each(one.read)
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing containers of the container runtime at %s: %w", path, err)
	}
	return all, nil
}

// read reads a field of a container.
func (l *listed) read(f grpcread.Field) error {
	switch f.Number {
	case criID:
		id, err := f.Text()
		l.id = string(id)
		return err
	case criState:
		l.exited = f.Value == uint64(cri.ContainerState_CONTAINER_EXITED)
	case criCreated:
		l.created = int64(f.Value) //nolint:gosec // a protobuf int64 is sent like this
	case criLabels:
		return l.label(f)
	}
	return nil
}

// label reads a label if it names the container.
func (l *listed) label(f grpcread.Field) error {
	return readLabel(f, func(key []byte) (into *string, limit int) {
		return map[string]*string{
			labelNamespace: &l.name.namespace, labelPod: &l.name.pod, labelPodUID: &l.podUID, labelContainer: &l.name.container,
		}[string(key)], grpcread.MaxText
	})
}

// readLabel reads the value of a label into the result of place for its key, nil for an unwanted label. Values longer than limit bytes are
// ignored, because a part would be another value.
func readLabel(f grpcread.Field, place func(key []byte) (into *string, limit int)) error {
	var into *string
	var limit int
	return f.Each(func(f grpcread.Field) error {
		text, err := f.Text()
		switch {
		case f.Number == criLabelName:
			into, limit = place(text)
		case f.Number == criLabelValue && into != nil && len(text) <= limit:
			*into = string(text)
		}
		return err
	})
}
