package reports

import (
	"context"
	"fmt"
	"strings"

	authorizationapi "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// The ConfigMap with the settings by which servers authenticate the API server.
const (
	authenticationNamespace = "kube-system"
	authenticationMap       = "extension-apiserver-authentication"
	clientAuthority         = "requestheader-client-ca-file"
)

// FrontProxy authenticates users by the headers of the API server, whose certificate must be signed by the authority in the cluster's
// ConfigMap extension-apiserver-authentication. Use NewFrontProxy, and Run it.
type FrontProxy struct {
	authenticator.Request
	names     *headerrequest.RequestHeaderAuthRequestController
	authority *dynamiccertificates.ConfigMapCAController
}

// NewFrontProxy returns a FrontProxy for this API server.
func NewFrontProxy(client kubernetes.Interface) (*FrontProxy, error) {
	authority, err := dynamiccertificates.NewDynamicCAFromConfigMapController("requestheader-client-ca",
		authenticationNamespace, authenticationMap, clientAuthority, client)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority for requests of the API server: %w", err)
	}
	names := headerrequest.NewRequestHeaderAuthRequestController(authenticationMap, authenticationNamespace, client,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix",
		"requestheader-allowed-names")
	return &FrontProxy{
		names: names, authority: authority, Request: headerrequest.NewDynamicVerifyOptionsSecure(authority.VerifyOptions,
			headerrequest.StringSliceProviderFunc(names.AllowedClientNames), headerrequest.StringSliceProviderFunc(names.UsernameHeaders),
			headerrequest.StringSliceProviderFunc(names.UIDHeaders), headerrequest.StringSliceProviderFunc(names.GroupHeaders),
			headerrequest.StringSliceProviderFunc(names.ExtraHeaderPrefixes)),
	}, nil
}

// Run follows the ConfigMap until the context ends.
func (f *FrontProxy) Run(ctx context.Context) {
	go f.names.Run(ctx, 1)
	f.authority.Run(ctx, 1)
}

// Access reviews the access of users.
type Access struct{ Client kubernetes.Interface }

// Allowed asks the API server; the reason may be empty.
func (a Access) Allowed(ctx context.Context, by user.Info, what authorizationapi.ResourceAttributes) (allowed bool, reason string, err error) {
	extra := map[string]authorizationapi.ExtraValue{}
	for key, values := range by.GetExtra() {
		extra[key] = values
	}
	review, err := a.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationapi.SubjectAccessReview{
		Spec: authorizationapi.SubjectAccessReviewSpec{
			ResourceAttributes: &what, User: by.GetName(), Groups: by.GetGroups(), UID: by.GetUID(), Extra: extra,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, "", fmt.Errorf("reviewing the access of user %s: %w", by.GetName(), err)
	}
	return review.Status.Allowed, review.Status.Reason, nil
}

// attributes returns the attributes of a request for a resource, or for "resource/subresource".
func attributes(verb, resource, namespace, name string) authorizationapi.ResourceAttributes {
	resource, subresource, _ := strings.Cut(resource, "/")
	return authorizationapi.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: GroupVersion.Group, Version: GroupVersion.Version, Resource: resource,
		Subresource: subresource, Name: name,
	}
}
