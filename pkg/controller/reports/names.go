package reports

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The names of the resource of reports, and of its subresource.
const (
	resource = "reports"
	content  = "content"
)

// GroupVersion is the version of the API.
var GroupVersion = schema.GroupVersion{Group: "profiles.gpu.prism.dev", Version: "v1alpha1"}

var groupResource = resourceOf(resource)

// resourceOf returns a resource of the API.
func resourceOf(name string) schema.GroupResource {
	return schema.GroupResource{Group: GroupVersion.Group, Resource: name}
}

// validID reports whether a report can be named in the API.
func validID(id string) bool { return len(validation.IsDNS1123Label(id)) == 0 }
