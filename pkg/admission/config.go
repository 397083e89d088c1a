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

	"github.com/prism-gpu/prism/pkg/claim"
)

// Path is where the API server asks.
const Path = "/opaque-config"

// classLimit is how long all questions for classes of one object may take. What is not known by then is not judged by.
const classLimit = 500 * time.Millisecond

// OpaqueConfig answers the API server for ResourceClaims, ResourceClaimTemplates and DeviceClasses of resource.k8s.io/v1.
type OpaqueConfig struct {
	// Driver is the driver whose configuration is judged. That for others passes.
	Driver string
	// Classes reads DeviceClasses.
	Classes client.Reader
}

// Serve has the manager's webhook server answer, on every replica: none needs to lead for it.
func Serve(ctx context.Context, m manager.Manager, driver string) error {
	if _, err := m.GetCache().GetInformer(ctx, &resourceapi.DeviceClass{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching DeviceClasses for admission: %w", err)
	}
	server := m.GetWebhookServer()
	server.Register(Path, &webhook.Admission{Handler: &OpaqueConfig{Driver: driver, Classes: m.GetClient()}})
	if err := m.AddReadyzCheck("admission", server.StartedChecker()); err != nil {
		return fmt.Errorf("serving admission: %w", err)
	}
	return nil
}

// Handle lets pass what is not judged: other operations and kinds, and updates that leave the spec as it is, so that an object that
// was written before stays usable.
func (o *OpaqueConfig) Handle(ctx context.Context, req admission.Request) admission.Response {
	judged := req.Kind.Group == resourceapi.GroupName && req.Kind.Version == resourceapi.SchemeGroupVersion.Version && req.SubResource == "" &&
		(req.Operation == admissionapi.Create || req.Operation == admissionapi.Update)
	if !judged {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, classLimit)
	defer cancel()
	written := claim.Validator{Driver: o.Driver, Class: func(name string) *resourceapi.DeviceClass { return o.class(ctx, name) }}
	var problem error
	var err error
	switch req.Kind.Kind {
	case "ResourceClaim":
		problem, err = judge(req, func(c *resourceapi.ResourceClaim) any { return &c.Spec }, func(c *resourceapi.ResourceClaim) error {
			return written.Claim("spec", &c.Spec)
		})
	case "ResourceClaimTemplate":
		problem, err = judge(req, func(t *resourceapi.ResourceClaimTemplate) any { return &t.Spec }, func(t *resourceapi.ResourceClaimTemplate) error {
			return written.Claim("spec.spec", &t.Spec.Spec)
		})
	case "DeviceClass":
		problem, err = judge(req, func(c *resourceapi.DeviceClass) any { return &c.Spec }, func(c *resourceapi.DeviceClass) error {
			return written.DeviceClass(c.Name, &c.Spec)
		})
	}
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case problem != nil:
		return refused(problem)
	}
	return admission.Allowed("")
}

// judge reads the object and says what is wrong with it, nil where its spec was so before. err says that it cannot be read.
func judge[T any](req admission.Request, spec func(*T) any, wrong func(*T) error) (problem, err error) {
	now, before := new(T), new(T)
	if err := json.Unmarshal(req.Object.Raw, now); err != nil {
		return nil, fmt.Errorf("reading the %s: %w", req.Kind.Kind, err)
	}
	if req.Operation == admissionapi.Update {
		if err := json.Unmarshal(req.OldObject.Raw, before); err != nil {
			return nil, fmt.Errorf("reading the %s as it was: %w", req.Kind.Kind, err)
		}
		if equality.Semantic.DeepEqual(spec(now), spec(before)) {
			return nil, nil
		}
	}
	return wrong(now), nil
}

// class reads a class, nil where there is none or it is not known in time.
func (o *OpaqueConfig) class(ctx context.Context, name string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{}
	if err := o.Classes.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
		return nil
	}
	return class
}

// refused tells all that is wrong in one line, as the user's own mistake.
func refused(problem error) admission.Response {
	response := admission.Denied(strings.ReplaceAll(problem.Error(), "\n", "; "))
	response.Result.Code, response.Result.Reason = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid
	return response
}
