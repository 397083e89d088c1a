package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// GroupVersion is the version of the aggregated API, Resource its resource, and Kind the kind of an object.
var GroupVersion = schema.GroupVersion{Group: "profiles.gpu.prism.dev", Version: "v1alpha1"}

// The names of the API.
const (
	Resource = "reports"
	Kind     = "Report"
	content  = "content"
	sessions = "sessions"
)

// Client requests reports and sessions. It is safe for concurrent use.
type Client struct {
	rest rest.Interface
	http *http.Client
	// host is the name of the server in errors.
	host  string
	warn  *warnings
	clock *Clock
}

// New returns a client for the cluster and user of a kubeconfig.
func New(from *rest.Config) (*Client, error) {
	config := rest.CopyConfig(from)
	config.GroupVersion, config.APIPath = &GroupVersion, "/apis"
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS, config.Burst = 50, 100 // a cluster may have many namespaces, and lists many pages
	warn, clock := &warnings{}, &Clock{}
	config.Wrap(clock.Wrap)
	config.WarningHandler, config.WarningHandlerWithContext = warn, nil
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	client, err := rest.RESTClientForConfigAndClient(config, transport)
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	downloads := *transport
	downloads.Timeout = 0 // a download times out if no data is received
	return &Client{rest: client, http: &downloads, host: config.Host, warn: warn, clock: clock}, nil
}

// List returns the reports of a namespace, or of all namespaces for "", in the order of the server. The list names the nodes that did not
// answer, and the nodes that store more reports than the list contains per node.
func (c *Client) List(ctx context.Context, namespace string, s Selection) (*v1alpha1.ReportList, error) {
	all, err := list[v1alpha1.Report](ctx, c, act{verb: "list", namespace: namespace}, s)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.ReportList{Items: all.Items, SilentNodes: all.SilentNodes, TruncatedNodes: all.TruncatedNodes}
	list.APIVersion, list.Kind = GroupVersion.String(), Kind+"List"
	for i := range list.Items {
		list.Items[i].APIVersion, list.Items[i].Kind = GroupVersion.String(), Kind
	}
	return list, nil
}

// Get returns one report.
func (c *Client) Get(ctx context.Context, namespace, name string) (*v1alpha1.Report, error) {
	report := &v1alpha1.Report{}
	if err := decode(c.rest.Get().Namespace(namespace).Resource(Resource).Name(name).Do(ctx), report); err != nil {
		return nil, c.explain(err, act{verb: "get", namespace: namespace, name: name})
	}
	report.APIVersion, report.Kind = GroupVersion.String(), Kind
	return report, nil
}

// decode decodes a response.
func decode(answer rest.Result, into any) error {
	if err := answer.Error(); err != nil { // Raw does not return the error messages of the server
		return err
	}
	raw, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// Delete removes one report.
func (c *Client) Delete(ctx context.Context, namespace, name string) error {
	err := c.rest.Delete().Namespace(namespace).Resource(Resource).Name(name).Body(&metav1.DeleteOptions{}).Do(ctx).Error()
	if err != nil {
		return c.explain(err, act{verb: "delete", namespace: namespace, name: name})
	}
	return nil
}

// Warnings returns the new warnings of the server, each once.
func (c *Client) Warnings() []string { return c.warn.take() }

// warnings collects the warning headers of responses.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if code == 299 && text != "" && !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.texts
	w.texts = nil
	return taken
}
