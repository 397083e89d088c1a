package kube_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// A proxy, a starting server and one that does not serve the resource return 404 as well.
func TestExists_Responses_FalseOnlyForNotFoundOfTheClaim(t *testing.T) {
	t.Parallel()
	notFound := apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "c").Status()
	notFound.Kind, notFound.APIVersion = "Status", "v1"
	forbidden := apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "c", nil).Status()
	forbidden.Kind, forbidden.APIVersion = "Status", "v1"
	found := resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid"},
	}
	other := found
	other.UID = "another"
	for name, c := range map[string]struct {
		code     int
		response any
		exists   bool
		err      string
	}{
		"exists":      {code: http.StatusOK, response: found, exists: true},
		"another UID": {code: http.StatusOK, response: other},
		"deleted":     {code: http.StatusNotFound, response: notFound},
		"unsupported": {code: http.StatusNotFound, response: "404 page not found", err: "reading claim ns/c: "},
		"forbidden":   {code: http.StatusForbidden, response: forbidden, err: "reading claim ns/c: "},
		"broken":      {code: http.StatusInternalServerError, response: "etcd is away", err: "reading claim ns/c: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reads++
				assert.Equal(t, "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c", r.URL.String(), "without a resourceVersion, which would allow cached results")
				text, plain := c.response.(string)
				if plain {
					http.Error(w, text, c.code)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				assert.NoError(t, json.NewEncoder(w).Encode(c.response))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			exists, err := kube.Claims{Client: client}.Exists(t.Context(), kube.ClaimRef{Namespace: "ns", Name: "c", UID: "uid"})
			assert.Equal(t, c.exists, exists)
			assert.Equal(t, 1, reads)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}
