package ui

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

const (
	// tokenBytes is the size of the token, 256 bits.
	tokenBytes = 32
	// streams is the number of event streams at a time. A browser opens six connections to a host at most.
	streams = 16
	// explanations is the number of explanations that are computed at a time; each takes a CPU.
	explanations = 1
	// explainTime limits an explanation, writeTime a write to the browser.
	explainTime = 60 * time.Second
	writeTime   = 10 * time.Second
)

// policy allows the page's own script, style and streams, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// errNotFound means that a pod is not in the picture.
var errNotFound = errors.New("pod not found")

// source is the cluster behind the page.
type source interface {
	// explain explains a pod of the newest picture; errNotFound if it is not there.
	explain(ctx context.Context, namespace, name string) (*explain.Explanation, error)
	// save writes the newest picture as one file.
	save(w io.Writer) error
}

// server answers the browser.
type server struct {
	token  string
	hosts  []string
	cookie string
	hub    *hub
	source source
	// streaming and explaining hold a value for each request in progress.
	streaming, explaining chan struct{}
	assets                *assets
	mux                   *http.ServeMux
}

// newServer returns the server of a page at a port of the loopback interface, with a new token.
func newServer(port int, h *hub, from source) (*server, error) {
	all, err := loadAssets()
	if err != nil {
		return nil, err
	}
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("creating the token of the page: %w", err)
	}
	s := &server{
		token: hex.EncodeToString(random),
		// Cookies are shared by the ports of a host.
		cookie: fmt.Sprintf("prism-ui-%d", port),
		hub:    h, source: from, assets: all,
		streaming: make(chan struct{}, streams), explaining: make(chan struct{}, explanations),
		mux: http.NewServeMux(),
	}
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		s.hosts = append(s.hosts, net.JoinHostPort(host, fmt.Sprint(port)))
	}
	s.mux.HandleFunc("/{$}", s.page)
	s.mux.HandleFunc("/style.css", file("text/css; charset=utf-8", all.style))
	s.mux.HandleFunc("/script.js", file("text/javascript; charset=utf-8", all.script))
	s.mux.HandleFunc("/events", s.events)
	s.mux.HandleFunc("/explain", s.explain)
	s.mux.HandleFunc("/save", s.save)
	return s, nil
}

// url is the URL that a user opens.
func (s *server) url() string { return "http://" + s.hosts[0] + "/?token=" + s.token }

// prefer puts the address that the server listens at into the URL.
func (s *server) prefer(address net.IP) {
	_, port, _ := net.SplitHostPort(s.hosts[0])
	host := net.JoinHostPort(address.String(), port)
	s.hosts = append([]string{host}, s.hosts...)
}

// ServeHTTP answers requests of the page's own browser: a foreign Host would come from another name that resolves to the loopback interface,
// a foreign site from a page that the user has open.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	switch {
	case !slices.Contains(s.hosts, r.Host):
		http.Error(w, "Host must be the address of the page", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are supported", http.StatusMethodNotAllowed)
	case r.URL.Path == "/" && r.URL.Query().Has("token"):
		s.enter(w, r)
	case !s.entered(r) || foreign(r):
		http.Error(w, "open the URL that kubectl prism ui has printed", http.StatusForbidden)
	default:
		s.mux.ServeHTTP(w, r)
	}
}

// enter exchanges the token of the URL for a cookie, so that neither history nor screen show it.
func (s *server) enter(w http.ResponseWriter, r *http.Request) {
	if !s.matches(r.URL.Query().Get("token")) {
		http.Error(w, "the token is of another kubectl prism ui: open the URL that it has printed", http.StatusForbidden)
		return
	}
	// Secure would need TLS, which the loopback interface does not.
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // loopback without TLS
		Name: s.cookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// entered reports whether the request has the cookie.
func (s *server) entered(r *http.Request) bool {
	cookie, err := r.Cookie(s.cookie)
	return err == nil && s.matches(cookie.Value)
}

func (s *server) matches(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// foreign reports whether another page made the request. A page at another port of the loopback interface is of the same site, and the
// browser sends its requests with the cookie.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none" && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// page writes the page, without data.
func (s *server) page(w http.ResponseWriter, _ *http.Request) {
	var page bytes.Buffer
	if err := s.assets.live(&page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes())
}

// file answers with a file of the page.
func file(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text)
	}
}

// explain answers with the explanation of the pod ?pod=NAMESPACE/NAME as JSON.
func (s *server) explain(w http.ResponseWriter, r *http.Request) {
	namespace, name, found := cut(r.URL.Query().Get("pod"))
	if !found {
		http.Error(w, `"pod" must be NAMESPACE/NAME`, http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTime)
	defer cancel()
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		http.Error(w, "other explanations are being computed", http.StatusServiceUnavailable)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(explainTime + writeTime))
	explanation, err := s.source.explain(ctx, namespace, name)
	switch {
	case errors.Is(err, errNotFound):
		http.Error(w, fmt.Sprintf("pod %s/%s does not exist any more", namespace, name), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(explanation)
	}
}

// save answers with the picture as one file.
func (s *server) save(w http.ResponseWriter, _ *http.Request) {
	var page bytes.Buffer
	if err := s.source.save(&page); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="gpus.html"`)
	_, _ = w.Write(page.Bytes())
}
