package bench

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/prism-gpu/prism/pkg/controller/reports"
)

// makeReportUser creates a namespace with a ServiceAccount that has the role edit there, which includes requests for reports.
func (b *bencher) makeReportUser(ctx context.Context, name string) (*reportUser, error) {
	const account = "user"
	namespace, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + name + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating the namespace of user %s: %w", name, err)
	}
	u := &reportUser{namespace: namespace.Name, url: b.API.Host + "/apis/" + reports.GroupVersion.String() + "/namespaces/" + namespace.Name + "/reports"}
	named := metav1.ObjectMeta{Name: account}
	group := []string{reports.GroupVersion.Group}
	_, accountErr := b.client.CoreV1().ServiceAccounts(u.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named}, metav1.CreateOptions{})
	_, roleErr := b.client.RbacV1().Roles(u.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"reports"}, Verbs: []string{"get", "list", "delete"}},
		{APIGroups: group, Resources: []string{"reports/content"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	_, bindingErr := b.client.RbacV1().RoleBindings(u.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: u.namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err := errors.Join(accountErr, roleErr, bindingErr); err != nil {
		return u, fmt.Errorf("creating user %s: %w", name, err)
	}
	token, err := b.client.CoreV1().ServiceAccounts(u.namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return u, fmt.Errorf("requesting a token for user %s: %w", name, err)
	}
	u.client, err = clientOf(b.API, token.Status.Token)
	return u, err
}

// clientOf returns a client with the rights of a token, which shares no connection with others.
func clientOf(api *rest.Config, token string) (*http.Client, error) {
	config, err := rest.TLSConfigFor(rest.AnonymousClientConfig(api))
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return &http.Client{Transport: transport.NewBearerAuthRoundTripper(token, &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true})}, nil
}

// removeReportUser removes the namespace.
func (b *bencher) removeReportUser(ctx context.Context, u *reportUser) error {
	if u == nil {
		return nil
	}
	return b.client.CoreV1().Namespaces().Delete(ctx, u.namespace, metav1.DeleteOptions{})
}

// apiServices are the registrations of aggregated APIs.
var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// controllerService is the name of the Service of a controller, and serverName the name in its certificate that the API server expects.
const controllerService = "controller"

func serverName(namespace string) string { return controllerService + "." + namespace + ".svc" }

// registerReports registers a controller at that address for the API of reports. The result removes the registration.
func (b *bencher) registerReports(ctx context.Context, namespace, address string, port int32, authority []byte) (remove func(context.Context) error, err error) {
	const portName = "https"
	_, serviceErr := b.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: controllerService}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, Port: 443}}},
	}, metav1.CreateOptions{})
	family := discoveryv1.AddressTypeIPv4
	if net.ParseIP(address).To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	_, endpointErr := b.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: controllerService, Labels: map[string]string{discoveryv1.LabelServiceName: controllerService}},
		AddressType: family, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports: []discoveryv1.EndpointPort{{Name: new(portName), Port: new(port)}},
	}, metav1.CreateOptions{})
	client, clientErr := dynamic.NewForConfig(b.API)
	if err := errors.Join(serviceErr, endpointErr, clientErr); err != nil {
		return nil, fmt.Errorf("creating the Service of a controller: %w", err)
	}
	registration := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiServices.GroupVersion().String(), "kind": "APIService",
		"metadata": map[string]any{"name": reports.GroupVersion.Version + "." + reports.GroupVersion.Group},
		"spec": map[string]any{
			"group": reports.GroupVersion.Group, "version": reports.GroupVersion.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"caBundle": base64.StdEncoding.EncodeToString(authority), "service": map[string]any{"namespace": namespace, "name": controllerService},
		},
	}}
	if _, err := client.Resource(apiServices).Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("registering the API of reports: %w", err)
	}
	return func(ctx context.Context) error {
		return client.Resource(apiServices).Delete(ctx, registration.GetName(), metav1.DeleteOptions{})
	}, nil
}
