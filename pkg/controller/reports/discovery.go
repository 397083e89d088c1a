package reports

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var version = metav1.GroupVersionForDiscovery{GroupVersion: GroupVersion.String(), Version: GroupVersion.Version}

var oneGroup = metav1.APIGroup{
	TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: GroupVersion.Group,
	Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
}

var groups = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{oneGroup}}

// resources lists no verb watch: controllers that require it, such as the garbage collector, ignore the resource.
var resources = metav1.APIResourceList{
	TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: GroupVersion.String(),
	APIResources: []metav1.APIResource{
		{Name: resource, SingularName: "report", Namespaced: true, Kind: reportKind.kind, Verbs: metav1.Verbs{"get", "list", "delete"}},
		{Name: resource + "/" + content, Namespaced: true, Kind: reportKind.kind, Verbs: metav1.Verbs{"get"}},
		{Name: sessionKind.resource, SingularName: "session", Namespaced: true, Kind: sessionKind.kind, Verbs: metav1.Verbs{"get", "list"}},
		{Name: commandResource, SingularName: "sessioncommand", Namespaced: true, Kind: commandKind, Verbs: metav1.Verbs{"create"}},
	},
}

// discovery answers with the contents of the API, which are public.
func discovery(what any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, what) }
}
