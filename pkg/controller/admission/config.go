package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionapi "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
)

// Path is the URL path of the webhook.
const Path = "/opaque-config"

// classTimeout bounds reading all DeviceClasses of one object. A class that is not read by then is not considered.
const classTimeout = 500 * time.Millisecond

// OpaqueConfig validates ResourceClaims, ResourceClaimTemplates and DeviceClasses of resource.k8s.io/v1.
type OpaqueConfig struct {
	// Driver is the name of the driver whose configuration is validated. Configuration for other drivers is allowed.
	Driver string
	// Classes reads DeviceClasses.
	Classes client.Reader
	// Profiles is the cluster's policy for profiles; nil: claims are compared with it only when they are prepared.
	Profiles Policy
}

// Policy limits the profiles that claims may request.
type Policy interface {
	// Limit returns the reason why a configuration of a claim in that namespace is not allowed. A policy that cannot be read allows
	// everything. The configuration may be changed.
	Limit(ctx context.Context, namespace string, config *v1alpha1.ProfilerConfig) error
}

// Serve registers the webhook with the manager's webhook server. Every replica answers requests, not only the leader. profiles names the
// ConfigMap with the policy for profiles; an empty name means no policy.
func Serve(ctx context.Context, m manager.Manager, driver string, profiles types.NamespacedName) error {
	if _, err := m.GetCache().GetInformer(ctx, &resourceapi.DeviceClass{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching DeviceClasses for admission: %w", err)
	}
	handler := &OpaqueConfig{Driver: driver, Classes: m.GetClient()}
	if profiles.Name != "" {
		handler.Profiles = ProfileRules{Reader: m.GetAPIReader(), Map: profiles}
	}
	m.GetWebhookServer().Register(Path, &webhook.Admission{Handler: handler})
	return nil
}

// Handle allows requests that are not validated: other operations and kinds, and updates that do not change the spec, so that objects
// that were created without the webhook stay usable.
func (o *OpaqueConfig) Handle(ctx context.Context, req admission.Request) admission.Response {
	validated := req.Kind.Group == resourceapi.GroupName && req.Kind.Version == resourceapi.SchemeGroupVersion.Version && req.SubResource == "" &&
		(req.Operation == admissionapi.Create || req.Operation == admissionapi.Update)
	if !validated {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, classTimeout)
	defer cancel()
	profile := claim.ProfileExtension{}
	if o.Profiles != nil {
		profile.Policy = func(c *v1alpha1.ProfilerConfig) error { return o.Profiles.Limit(ctx, req.Namespace, c) }
	}
	written := claim.Validator{
		Driver: o.Driver, Class: func(name string) *resourceapi.DeviceClass { return o.class(ctx, name) },
		Extensions: []claim.PlanExtension{claim.MPSExtension{}, claim.MetricsExtension{}, profile},
	}
	var problem error
	var err error
	switch req.Kind.Kind {
	case "ResourceClaim":
		problem, err = validate(req, func(c *resourceapi.ResourceClaim) any { return &c.Spec }, func(c *resourceapi.ResourceClaim) error {
			return written.Claim("spec", &c.Spec)
		})
	case "ResourceClaimTemplate":
		problem, err = validate(req, func(t *resourceapi.ResourceClaimTemplate) any { return &t.Spec }, func(t *resourceapi.ResourceClaimTemplate) error {
			return written.Claim("spec.spec", &t.Spec.Spec)
		})
	case "DeviceClass":
		problem, err = validate(req, func(c *resourceapi.DeviceClass) any { return &c.Spec }, func(c *resourceapi.DeviceClass) error {
			return written.DeviceClass(c.Name, &c.Spec)
		})
	}
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case problem != nil:
		return denied(problem)
	}
	return admission.Allowed("")
}

// validate decodes the object and returns the problem with it, nil if an update does not change its spec. err: decoding failed.
func validate[T any](req admission.Request, spec func(*T) any, check func(*T) error) (problem, err error) {
	object, old := new(T), new(T)
	if err := json.Unmarshal(req.Object.Raw, object); err != nil {
		return nil, fmt.Errorf("decoding the %s: %w", req.Kind.Kind, err)
	}
	if req.Operation == admissionapi.Update {
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return nil, fmt.Errorf("decoding the old %s: %w", req.Kind.Kind, err)
		}
		if equality.Semantic.DeepEqual(spec(object), spec(old)) {
			return nil, nil
		}
	}
	return check(object), nil
}

// class returns a DeviceClass, nil if it does not exist or is not read in time.
func (o *OpaqueConfig) class(ctx context.Context, name string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{}
	if err := o.Classes.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
		return nil
	}
	return class
}

// denied puts all errors on one line, with the status of an invalid object.
func denied(problem error) admission.Response {
	response := admission.Denied(strings.ReplaceAll(problem.Error(), "\n", "; "))
	response.Result.Code, response.Result.Reason = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid
	return response
}
