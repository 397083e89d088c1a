package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/browser"
)

func TestLive_Changes_DrawnWithoutReload(t *testing.T) {
	t.Parallel()
	store := cluster(t, 4, 2)
	server := serve(t, store)
	p := open(t, server.url, 1360, 800)
	p.wait("document.querySelector('#status').textContent === 'Live'")
	assert.Equal(t, "/", p.text("location.pathname + location.search"), "the token has left the address")
	assert.Empty(t, p.text("document.cookie"), "scripts cannot read the cookie")
	p.run("window.kept = document.querySelector('[data-node=gpu-a00]')")

	cordoned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-a01"}}
	cordoned.Spec.Unschedulable = true
	store.PutNode(cordoned)
	created := metav1.NewTime(cordoned.CreationTimestamp.Time)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "late", UID: "late", CreationTimestamp: created}}
	claim := "late"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	pod.Status.Phase = corev1.PodPending
	store.PutPod(pod)
	server.change()
	p.wait("document.querySelector('[data-node=gpu-a01] .chip') && document.querySelectorAll('.pending').length === 3")
	assert.Equal(t, "cordoned", p.text("document.querySelector('[data-node=gpu-a01] .chip').textContent"))
	assert.Equal(t, "Pod ml/late is pending", p.text("document.querySelector('#news').textContent"))
	assert.Equal(t, "true", p.text("String(window.kept === document.querySelector('[data-node=gpu-a00]'))"), "other rows stay")

	server.end()
	p.wait("document.querySelector('#status').dataset.state === 'lost'")
	assert.NotZero(t, p.rows(), "the last picture stays")
}

func TestLive_ForeignHostOrNoToken_Refused(t *testing.T) {
	t.Parallel()
	server := serve(t, cluster(t, 2, 0))
	base, _, _ := strings.Cut(server.url, "?")
	tab, closeTab, err := chromium.Tab(800, 600)
	require.NoError(t, err)
	defer closeTab()
	for url, want := range map[string]string{
		base: "open the URL that kubectl prism ui has printed",
		base + "?token=" + strings.Repeat("0", 64):                       "open the URL that it has printed",
		strings.Replace(server.url, "127.0.0.1", browser.ReboundHost, 1): "Host must be the address of the page",
	} {
		require.NoError(t, tab.Open(url), url)
		text, err := tab.Text("document.body.textContent")
		require.NoError(t, err)
		assert.Contains(t, text, want, url)
	}
	// A page at another port of the loopback interface is of the same site, so the browser sends the cookie with its requests.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/html") }))
	defer other.Close()
	require.NoError(t, tab.Open(server.url))
	require.NoError(t, tab.Wait("document.querySelector('.node')"))
	require.NoError(t, tab.Open(other.URL))
	require.NoError(t, tab.Run("fetch('"+base+"style.css', {mode: 'no-cors', credentials: 'include'}).then(() => { window.answer = 'read'; }, () => { window.answer = 'refused'; })"))
	require.NoError(t, tab.Wait("window.answer"))
	answer, err := tab.Text("window.answer")
	require.NoError(t, err)
	assert.Equal(t, "refused", answer)
}
