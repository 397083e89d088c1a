package helm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/roles"
)

// TestChartViewers_Subjects_BoundToTheRoles: each list of subjects is bound to its role, and the roles only read.
func TestChartViewers_Subjects_BoundToTheRoles(t *testing.T) {
	rendered := parse(t, render(t, "--set-json", `viewers={"gpus": [{"kind": "Group", "name": "devs"}], "all": [{"kind": "User", "name": "jane"}, `+
		`{"kind": "ServiceAccount", "name": "ui", "namespace": "ops"}]}`))
	const group = "rbac.authorization.k8s.io"
	devs := []any{map[string]any{"kind": "Group", "apiGroup": group, "name": "devs"}}
	all := []any{map[string]any{"kind": "User", "apiGroup": group, "name": "jane"}, map[string]any{"kind": "ServiceAccount", "name": "ui", "namespace": "ops"}}
	view, viewAll := strings.Replace(roles.View, "<fullname>", "prism", 1), strings.Replace(roles.ViewAll, "<fullname>", "prism", 1)
	for _, c := range []struct {
		kind, name string
		subjects   []any
	}{{"Cluster", view, devs}, {"Cluster", viewAll, all}, {"", viewAll, all}} {
		role, binding := rendered[c.kind+"Role/"+c.name], rendered[c.kind+"RoleBinding/"+c.name]
		require.NotNil(t, role, c.name)
		assert.Equal(t, map[string]any{"apiGroup": group, "kind": c.kind + "Role", "name": c.name}, dig(t, binding, "roleRef"))
		assert.Equal(t, c.subjects, dig(t, binding, "subjects"))
		for _, rule := range dig(t, role, "rules").([]any) {
			rule := rule.(map[string]any)
			for _, verb := range rule["verbs"].([]any) {
				assert.Contains(t, []any{"get", "list", "watch"}, verb)
			}
			assert.NotContains(t, rule["resources"], "secrets")
			assert.Equal(t, c.kind == "", strings.Contains(rule["resources"].([]any)[0].(string), "proxy"), "a proxy reaches pods of one namespace only")
		}
	}
	assert.Subset(t, dig(t, rendered["ClusterRole/"+viewAll], "rules"), dig(t, rendered["ClusterRole/"+view], "rules"))
	assert.Equal(t, namespace, rendered["RoleBinding/"+viewAll].GetNamespace())
}

// TestChartViewers_Default_NothingBound: the roles exist, so that an administrator can bind them by hand.
func TestChartViewers_Default_NothingBound(t *testing.T) {
	rendered := parse(t, render(t))
	for key, object := range rendered {
		if object.GetLabels()["app.kubernetes.io/component"] == "viewers" {
			assert.NotContains(t, key, "Binding")
		}
	}
	assert.Contains(t, rendered, "ClusterRole/prism-gpus-view")
	assert.Contains(t, rendered, "ClusterRole/prism-gpus-view-all")
}

func TestChartViewers_InvalidSubjects_Refused(t *testing.T) {
	for _, subject := range []string{
		`{"kind": "ServiceAccount", "name": "ui"}`, `{"kind": "User", "name": "jane", "namespace": "ops"}`, `{"kind": "Robot", "name": "r"}`, `{"kind": "User"}`,
		`{"kind": "ServiceAccount", "name": "ui", "namespace": ""}`, `{"kind": "Group", "name": ""}`,
	} {
		_, complaint, err := template(t, "--set-json", `viewers.all=[`+subject+`]`)
		require.Error(t, err, subject)
		assert.Contains(t, complaint, "/viewers/all/0", subject)
	}
}
