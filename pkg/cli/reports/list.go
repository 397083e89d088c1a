package reports

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// pageSize is the limit of one list request: a list without a limit ends at the memory limit of the server.
const pageSize = 500

// page is the answer to a list request, or all pages of a list.
type page[T any] struct {
	metav1.ListMeta `json:"metadata"`
	Items           []T                   `json:"items"`
	SilentNodes     []string              `json:"silentNodes"`
	TruncatedNodes  []string              `json:"truncatedNodes"`
	Claims          []v1alpha1.ArmedClaim `json:"claims"`
}

// list returns all pages of a list. Names of nodes and claims are sorted, each once.
func list[T any](ctx context.Context, c *Client, a act, s Selection) (*page[T], error) {
	ofLabels, ofFields, err := s.Selectors()
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{LabelSelector: ofLabels, FieldSelector: ofFields, Limit: pageSize}
	all := &page[T]{}
	silent, truncated, claims := map[string]bool{}, map[string]bool{}, map[v1alpha1.ArmedClaim]bool{}
	for {
		var next page[T]
		err := decode(c.rest.Get().NamespaceIfScoped(a.namespace, a.namespace != "").Resource(a.resource()).
			SpecificallyVersionedParams(&options, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).Do(ctx), &next)
		if err != nil {
			return nil, c.explain(err, a)
		}
		all.Items = append(all.Items, next.Items...)
		add(silent, next.SilentNodes)
		add(truncated, next.TruncatedNodes)
		add(claims, next.Claims)
		if options.Continue = next.Continue; options.Continue == "" {
			break
		}
	}
	all.SilentNodes, all.TruncatedNodes = slices.Sorted(maps.Keys(silent)), slices.Sorted(maps.Keys(truncated))
	all.Claims = slices.SortedFunc(maps.Keys(claims), compareClaims)
	return all, nil
}

func add[T comparable](set map[T]bool, elements []T) {
	for _, element := range elements {
		set[element] = true
	}
}
