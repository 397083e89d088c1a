package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// readLimit is the timeout of a read that the API server does not answer.
const readLimit = 2 * time.Minute

// groups maps the plural names that kubectl uses to the API groups that tests read.
var groups = map[string]string{
	"pods": "/api/v1", "nodes": "/api/v1", "events": "/api/v1", "serviceaccounts": "/api/v1", "configmaps": "/api/v1",
	"resourceclaims": "/apis/resource.k8s.io/v1", "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
	"resourceslices": "/apis/resource.k8s.io/v1", "deviceclasses": "/apis/resource.k8s.io/v1",
	"leases": "/apis/coordination.k8s.io/v1", "endpointslices": "/apis/discovery.k8s.io/v1",
	"reports": "/apis/profiles.gpu.prism.dev/v1alpha1", "sessions": "/apis/profiles.gpu.prism.dev/v1alpha1",
}

// newReader returns a client for objects that tests poll: a process of kubectl for each read costs ten times as much as the read.
func newReader(kubeconfig string) (rest.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, readLimit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.RESTClient(), nil
}

// get decodes the result of kubectl get with these arguments: a resource, the name of one object, --namespace and selectors.
func (c *cluster) get(into any, what ...string) error {
	path, parameters, err := requestOf(what)
	if err != nil {
		return err
	}
	request := c.reader.Get().AbsPath(path)
	for name, value := range parameters {
		request = request.Param(name, value)
	}
	out, err := request.DoRaw(context.Background())
	if err != nil {
		return fmt.Errorf("reading %s: %w", strings.Join(what, " "), err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("decoding %s: %w", strings.Join(what, " "), err)
	}
	return nil
}

// getRaw reads a path of the API server.
func (c *cluster) getRaw(path string) (string, error) {
	out, err := c.reader.Get().AbsPath(path).DoRaw(context.Background())
	if err != nil {
		err = fmt.Errorf("reading %s: %w", path, err)
	}
	return string(out), err
}

// requestOf returns the path and the parameters of a request for the arguments of kubectl get.
func requestOf(what []string) (path string, parameters map[string]string, err error) {
	parameters = map[string]string{}
	var words []string
	namespace := ""
	for i := 0; i < len(what); i++ {
		if !strings.HasPrefix(what[i], "--") {
			words = append(words, what[i])
			continue
		}
		if what[i] == "--all-namespaces" {
			continue
		}
		if i+1 == len(what) {
			return "", nil, fmt.Errorf("missing value of %s", what[i])
		}
		switch what[i] {
		case "--namespace":
			namespace = what[i+1]
		case "--selector":
			parameters["labelSelector"] = what[i+1]
		case "--field-selector":
			parameters["fieldSelector"] = what[i+1]
		default:
			return "", nil, fmt.Errorf("unknown argument %s", what[i])
		}
		i++
	}
	candidates := []string{words[0], words[0] + "s", words[0] + "es"}
	known := slices.IndexFunc(candidates, func(plural string) bool { return groups[plural] != "" })
	if known < 0 {
		return "", nil, fmt.Errorf("unknown resource %s", words[0])
	}
	path = groups[candidates[known]]
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return strings.Join(append([]string{path, candidates[known]}, words[1:]...), "/"), parameters, nil
}
