package configsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// reader reads the node's configuration.
type reader struct {
	from     config.NodeConfig
	nodeName string
	api      kube.Configs
	warned   sync.Map // warnings that were logged
}

// read returns the node's configuration, nil if there is none, and reports once which parts of it have no effect.
func (r *reader) read(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	config, warnings, err := r.parse(ctx)
	for _, warning := range warnings {
		if _, said := r.warned.LoadOrStore(warning, true); !said {
			klog.FromContext(ctx).Info("A key of the node's configuration has no effect", "key", warning.Path, "reason", warning.Text)
		}
	}
	return config, err
}

func (r *reader) parse(ctx context.Context) (*v1alpha1.NodeConfig, []nodeconfig.Warning, error) {
	from := r.from
	switch {
	case from.File != "":
		raw, err := os.ReadFile(from.File)
		if err != nil {
			return nil, nil, &readError{fmt.Errorf("--node-config: %w", err)}
		}
		config, warnings, err := nodeconfig.Parse(raw, "file "+from.File)
		return config, warnings, refused(err)
	case from.Map != "":
		config, warnings, err := r.readMap(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("ConfigMap %s: %w", from.Map, err)
		}
		return config, warnings, nil
	default:
		return nil, nil, nil
	}
}

// readMap reads the ConfigMap's document for this node.
func (r *reader) readMap(ctx context.Context) (*v1alpha1.NodeConfig, []nodeconfig.Warning, error) {
	from := r.from
	namespace, name, _ := strings.Cut(from.Map, "/")
	data, err := r.api.Get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil, refused(err)
	}
	if err != nil {
		return nil, nil, err
	}
	choice := nodeconfig.Choice{LabelKey: from.Label, Default: from.Name}
	for _, fallback := range from.Fallbacks {
		choice.Fallbacks = append(choice.Fallbacks, nodeconfig.Fallback(fallback))
	}
	if from.Label != "" {
		if choice.Label, err = r.api.Label(ctx, r.nodeName, from.Label); err != nil {
			return nil, nil, err
		}
	}
	config, warnings, err := nodeconfig.Pick(data, choice)
	return config, warnings, refused(err)
}

func refused(err error) error {
	if err == nil {
		return nil
	}
	return &readError{err}
}

// Retryable reports whether the configuration could not be read for a reason of the moment. An API server that has just started forbids
// everything.
func Retryable(err error) bool {
	_, read := errors.AsType[*readError](err)
	return !read
}

// readError is about the text of the configuration.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// Watch calls changed when a source of the configuration may have changed, until the context ends. The label of the Node that selects the
// configuration is not watched here: the process has one watch of its Node for all uses.
func (r *reader) Watch(ctx context.Context, changed func()) error {
	if r.from.File != "" {
		disk.Watch(ctx, r.from.File, changed, func(err error) {
			klog.FromContext(ctx).Error(err, "The node's configuration is read every few seconds")
		})
		return nil
	}
	namespace, name, inMap := strings.Cut(r.from.Map, "/")
	if !inMap {
		return nil
	}
	watch := kube.ConfigWatch{Client: r.api.Client, Namespace: namespace, Map: name}
	return watch.Run(ctx, changed)
}
