package classes

import (
	"cmp"
	"fmt"

	admissionapi "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyName is the name of the policy and of its binding. It is the name of the owning ClusterRole, so that the policy survives a change
// of the driver name; without an owner it is the name of the driver.
func PolicyName(ownerRole, driver string) string {
	return "shared-requests." + cmp.Or(ownerRole, driver)
}

// newPolicy returns the policy that denies pods whose containers request more than one of any of the resources, with the message of
// NVIDIA's device plugin; nil without resources.
func newPolicy(name, driver string, resources []string) (*admissionapi.ValidatingAdmissionPolicy, *admissionapi.ValidatingAdmissionPolicyBinding) {
	if len(resources) == 0 {
		return nil, nil
	}
	meta := metav1.ObjectMeta{Name: name, Labels: labels(driver)}
	policy := &admissionapi.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionapi.ValidatingAdmissionPolicySpec{
			// An error of the policy must not block pods; the node refuses such requests too.
			FailurePolicy: new(admissionapi.Ignore),
			MatchConstraints: &admissionapi.MatchResources{
				ResourceRules: []admissionapi.NamedRuleWithOperations{{RuleWithOperations: admissionapi.RuleWithOperations{
					Operations: []admissionapi.OperationType{admissionapi.Create},
					Rule:       admissionapi.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Variables: []admissionapi.Variable{{
				Name: "limits", Expression: "(object.spec.containers + object.spec.?initContainers.orValue([])).map(c, c.?resources.?limits.orValue({}))",
			}},
		},
	}
	for _, resource := range resources {
		large := fmt.Sprintf(`variables.limits.filter(l, %q in l && quantity(l[%q]).compareTo(quantity("1")) > 0)`, resource, resource)
		policy.Spec.Validations = append(policy.Spec.Validations, admissionapi.Validation{
			Expression: "size(" + large + ") == 0",
			MessageExpression: fmt.Sprintf(`"request for '%s: " + string(%s[0][%q]) + "' too large: maximum request size for shared resources is 1"`,
				resource, large, resource),
		})
	}
	return policy, &admissionapi.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionapi.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionapi.ValidationAction{admissionapi.Deny},
		},
	}
}
