package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/profile/check"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// source reads reports on nodes from the API of reports, and reports in containers from the containers.
type source struct {
	*reports.Client
	containers
}

// containers reads files in containers.
type containers struct{ cluster }

// maxStderr limits the error output that is read from a program.
const maxStderr = 4 << 10

// Copy writes the file of a report in its container.
func (c containers) Copy(ctx context.Context, r *v1alpha1.Report, to io.Writer) error {
	doing := fmt.Sprintf("downloading report %s from container %s of pod %s/%s", r.Name, r.Spec.Container, r.Namespace, r.Spec.Pod)
	if !path.IsAbs(r.Status.Path) {
		return fmt.Errorf("%s: %q is not a path in the container", doing, r.Status.Path)
	}
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if err := runs(ctx, client, r); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := &keeps{to: to, failed: stop}
	err = unlessStalled(ctx, func(ctx context.Context, touch func()) error {
		return execute(ctx, config, client, r, touching{out, touch})
	})
	if failed := out.end(); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// runs returns an error if nothing can be executed in the container of a report.
func runs(ctx context.Context, client kubernetes.Interface, r *v1alpha1.Report) error {
	const gone = "the report was deleted with its container, unless output.path was in a volume; " +
		"with output type Node reports outlive their pods"
	pod, err := client.CoreV1().Pods(r.Namespace).Get(ctx, r.Spec.Pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return errors.New("the pod no longer exists: " + gone)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; downloading reports from containers requires get on pods and create on pods/exec", err)
	case err != nil:
		return err
	}
	statuses := slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses)
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == r.Spec.Container })
	switch {
	case i < 0:
		return fmt.Errorf("the pod of that name does not contain container %s: it is a different pod now, and %s", r.Spec.Container, gone)
	case statuses[i].State.Running == nil:
		return errors.New("the container is not running, so its files cannot be read: " + gone)
	case !check.UsesClaim(pod, r.Spec.Container, r.Spec.Claim):
		return fmt.Errorf("container %s of that pod does not use claim %s: it is a different pod now, or the container that recorded the report named a claim "+
			"that it does not use; nothing is read from it", r.Spec.Container, r.Spec.Claim)
	}
	return nil
}

// execute runs cat in the container, as kubectl exec does.
func execute(ctx context.Context, config *rest.Config, client kubernetes.Interface, r *v1alpha1.Report, to io.Writer) error {
	where := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(r.Namespace).Name(r.Spec.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: r.Spec.Container, Command: []string{"cat", r.Status.Path}, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", where)
	if err != nil {
		return err
	}
	socket, err := remotecommand.NewWebSocketExecutor(config, "GET", where.String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	said := &first{limit: maxStderr}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: to, Stderr: said})
	switch text := reports.Escape(strings.TrimSpace(said.String())); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; downloading reports from containers requires create on pods/exec", err)
	case text != "":
		return fmt.Errorf("cat %s: %s", r.Status.Path, text)
	default:
		return fmt.Errorf("%w; copying the file from the container requires cat in the image; without it, mount a volume at output.path, or use "+
			"output type Node", err)
	}
}

// touching calls touch after each write.
type touching struct {
	to    io.Writer
	touch func()
}

func (w touching) Write(b []byte) (int, error) {
	w.touch()
	return w.to.Write(b)
}

// keeps stores the error of a writer: streams of a container return their own error, and continue to read from the container. failed ends
// that. A stream may continue to write for a moment after it has returned.
type keeps struct {
	to     io.Writer
	failed func()

	mu    sync.Mutex
	err   error
	ended bool
}

func (k *keeps) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := k.to.Write(b)
	if err != nil {
		k.err = err
		k.failed()
	}
	return n, err
}

// end prevents further writes, and returns the error of the writer.
func (k *keeps) end() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	return k.err
}

// first keeps the first bytes. It does not embed a buffer, whose ReadFrom would keep all.
type first struct {
	limit int

	mu   sync.Mutex
	kept bytes.Buffer
}

func (f *first) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if room := f.limit - f.kept.Len(); room > 0 {
		f.kept.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

func (f *first) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept.String()
}
