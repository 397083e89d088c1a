package ui

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// fakeSource answers without a cluster.
type fakeSource struct {
	explanation *explain.Explanation
	err         error
}

func (f fakeSource) explain(context.Context, string, string) (*explain.Explanation, error) {
	return f.explanation, f.err
}

func (f fakeSource) save(w io.Writer) error {
	_, err := io.WriteString(w, "a page")
	return errors.Join(err, f.err)
}

func testServer(t *testing.T, from source) *server {
	t.Helper()
	s, err := newServer(8123, newHub(), from)
	require.NoError(t, err)
	return s
}

// ask sends a request with the cookie, changed by edit. Streams end at once.
func ask(s *server, method, path string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8123"+path, nil)
	if path == "/events" {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r = r.WithContext(ctx)
	}
	r.AddCookie(&http.Cookie{Name: s.cookie, Value: s.token})
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestServer_Host_LoopbackOnly(t *testing.T) {
	t.Parallel()
	s := testServer(t, fakeSource{})
	for host, want := range map[string]int{
		"127.0.0.1:8123": http.StatusOK, "localhost:8123": http.StatusOK, "[::1]:8123": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "evil.example:8123": http.StatusMisdirectedRequest, "127.0.0.1": http.StatusMisdirectedRequest,
		"127.0.0.1:8124": http.StatusMisdirectedRequest, "localhost.evil.example:8123": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/", "/style.css", "/save", "/?token=" + s.token} {
			if want == http.StatusOK && strings.Contains(path, "token") {
				continue
			}
			w := ask(s, http.MethodGet, path, func(r *http.Request) { r.Host = host })
			assert.Equal(t, want, w.Code, "%s%s", host, path)
		}
	}
}

func TestServer_Token_Required(t *testing.T) {
	t.Parallel()
	s, other := testServer(t, fakeSource{}), testServer(t, fakeSource{})
	require.NotEqual(t, s.token, other.token)
	assert.Len(t, s.token, 64)
	for name, edit := range map[string]func(*http.Request){
		"no cookie":         func(r *http.Request) { r.Header.Del("Cookie") },
		"cookie of another": func(r *http.Request) { r.Header.Set("Cookie", s.cookie+"="+other.token) },
		"empty cookie":      func(r *http.Request) { r.Header.Set("Cookie", s.cookie+"=") },
		"other port's name": func(r *http.Request) { r.Header.Set("Cookie", "prism-ui-1="+s.token) },
		"token in a header": func(r *http.Request) { r.Header.Set("Cookie", ""); r.Header.Set("Authorization", "Bearer "+s.token) },
	} {
		for _, path := range []string{"/", "/style.css", "/script.js", "/events", "/explain?pod=a/b", "/save", "/none"} {
			assert.Equal(t, http.StatusForbidden, ask(s, http.MethodGet, path, edit).Code, "%s %s", name, path)
		}
	}
	assert.Equal(t, http.StatusForbidden, ask(s, http.MethodGet, "/?token="+other.token, nil).Code, "the cookie does not replace a wrong token")
	assert.Equal(t, http.StatusForbidden, ask(s, http.MethodGet, "/?token=", nil).Code)
}

func TestServer_TokenInURL_BecomesCookie(t *testing.T) {
	t.Parallel()
	s := testServer(t, fakeSource{})
	require.True(t, strings.HasSuffix(s.url(), "/?token="+s.token))
	w := ask(s, http.MethodGet, "/?token="+s.token, func(r *http.Request) { r.Header.Del("Cookie") })
	assert.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/", w.Header().Get("Location"))
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	c := cookies[0]
	assert.Equal(t, s.cookie, c.Name)
	assert.True(t, c.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
	assert.Empty(t, c.Domain)
	w = ask(s, http.MethodGet, "/", func(r *http.Request) { r.Header.Set("Cookie", c.Name+"="+c.Value) })
	assert.Equal(t, http.StatusOK, w.Code)
	assert.NotContains(t, w.Body.String(), s.token)
}

func TestServer_Method_GetAndHeadOnly(t *testing.T) {
	t.Parallel()
	s := testServer(t, fakeSource{explanation: &explain.Explanation{}})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace} {
		for _, path := range []string{"/", "/events", "/explain?pod=a/b", "/?token=" + s.token} {
			w := ask(s, method, path, nil)
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
			assert.Empty(t, w.Header().Get("Set-Cookie"))
		}
	}
	assert.Equal(t, http.StatusOK, ask(s, http.MethodHead, "/", nil).Code)
	assert.Equal(t, http.StatusOK, ask(s, http.MethodHead, "/events", nil).Code)
}

func TestServer_ForeignPage_Refused(t *testing.T) {
	t.Parallel()
	s := testServer(t, fakeSource{})
	for _, site := range []string{"cross-site", "same-site"} {
		w := ask(s, http.MethodGet, "/events", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site); r.Header.Set("Sec-Fetch-Mode", "cors") })
		assert.Equal(t, http.StatusForbidden, w.Code, site)
	}
	for _, site := range []string{"same-origin", "none"} {
		w := ask(s, http.MethodGet, "/style.css", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site); r.Header.Set("Sec-Fetch-Mode", "no-cors") })
		assert.Equal(t, http.StatusOK, w.Code, site)
	}
}

func TestServer_Headers_OnEveryAnswer(t *testing.T) {
	t.Parallel()
	s := testServer(t, fakeSource{explanation: &explain.Explanation{}})
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/style.css": "text/css; charset=utf-8", "/script.js": "text/javascript; charset=utf-8",
		"/explain?pod=a/b": "application/json", "/save": "text/html; charset=utf-8", "/none": "text/plain; charset=utf-8",
	} {
		h := ask(s, http.MethodGet, path, nil).Header()
		assert.Equal(t, want, h.Get("Content-Type"), path)
		assert.Equal(t, policy, h.Get("Content-Security-Policy"), path)
		assert.NotContains(t, policy, "unsafe-")
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), path)
		assert.Equal(t, "no-store", h.Get("Cache-Control"), path)
		for name := range h {
			assert.False(t, strings.HasPrefix(name, "Access-Control-"), "%s: %s", path, name)
		}
	}
	refused := ask(s, http.MethodGet, "/", func(r *http.Request) { r.Host = "evil.example" })
	assert.Equal(t, policy, refused.Header().Get("Content-Security-Policy"))
}

func TestExplain_Pod_AnswersOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from source
		path string
		code int
		body string
	}{
		{fakeSource{explanation: &explain.Explanation{Sentence: "no <device>"}}, "/explain?pod=ml/train-0", http.StatusOK, `"sentence":"no \u003cdevice\u003e"`},
		{fakeSource{}, "/explain", http.StatusBadRequest, `"pod" must be NAMESPACE/NAME`},
		{fakeSource{}, "/explain?pod=a/b/c", http.StatusBadRequest, `"pod" must be NAMESPACE/NAME`},
		{fakeSource{}, "/explain?pod=/b", http.StatusBadRequest, `"pod" must be NAMESPACE/NAME`},
		{fakeSource{err: errNotFound}, "/explain?pod=ml/train-0", http.StatusNotFound, "pod ml/train-0 does not exist any more"},
		{fakeSource{err: errors.New("no classes")}, "/explain?pod=ml/train-0", http.StatusInternalServerError, "no classes"},
		{fakeSource{err: errors.New("not read")}, "/save", http.StatusServiceUnavailable, "not read"},
	} {
		w := ask(testServer(t, c.from), http.MethodGet, c.path, nil)
		assert.Equal(t, c.code, w.Code, c.path)
		assert.Contains(t, w.Body.String(), c.body)
	}
}

func TestExplain_OthersInProgress_WaitsForItsTurn(t *testing.T) {
	t.Parallel()
	s := testServer(t, fakeSource{explanation: &explain.Explanation{}})
	for range explanations {
		s.explaining <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := ask(s, http.MethodGet, "/explain?pod=a/b", func(r *http.Request) { *r = *r.WithContext(ctx) })
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	<-s.explaining
	assert.Equal(t, http.StatusOK, ask(s, http.MethodGet, "/explain?pod=a/b", nil).Code)
	assert.Len(t, s.explaining, explanations-1)
}
