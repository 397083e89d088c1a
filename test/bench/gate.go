package bench

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Request is one request to the API server.
type Request struct {
	Method, Path string
	// Needed reports whether the request passed while the gate was shut.
	Needed bool
}

// Writes reports whether the request changes something.
func (r Request) Writes() bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// Gate stands between a client and the API server. It remembers every request except watches. While it is shut, requests wait until it
// opens again: an answer that comes meanwhile did not need them.
type Gate struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []Request
	opening  chan struct{} // nil while the gate is open
	admitted []string
}

// NewGate returns an open gate in front of next.
func NewGate(next http.RoundTripper) *Gate { return &Gate{next: next} }

// RoundTrip lets the request through, at once or when the gate opens.
func (g *Gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if wait := g.arrive(r); wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return g.next.RoundTrip(r)
}

// arrive records the request and returns a channel to wait for, nil if the request may pass.
func (g *Gate) arrive(r *http.Request) <-chan struct{} {
	if r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	request := Request{Method: r.Method, Path: r.URL.Path}
	wait := g.opening
	if i := slices.Index(g.admitted, r.Method+" "+r.URL.Path); wait != nil && i >= 0 {
		g.admitted = slices.Delete(g.admitted, i, i+1)
		request.Needed, wait = true, nil
	}
	g.requests = append(g.requests, request)
	return wait
}

// Shut holds every request from now on, but lets each of the admitted ones ("<METHOD> <path>") through once.
func (g *Gate) Shut(admitted ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitted = admitted
	if g.opening == nil {
		g.opening = make(chan struct{})
	}
}

// Open lets all waiting and later requests pass.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opening != nil {
		close(g.opening)
		g.opening = nil
	}
}

// Take returns the requests since the last Take.
func (g *Gate) Take() []Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.requests
	g.requests = nil
	return taken
}

// blame adds to the error of a call, which failed while the gate was shut, the requests that it may have waited for.
func (g *Gate) blame(err error) error {
	var held []string
	for _, r := range g.Take() {
		if !r.Needed {
			held = append(held, r.Method+" "+r.Path)
		}
	}
	if err == nil || len(held) == 0 {
		return err
	}
	return fmt.Errorf("%w; it may have waited for these requests, which are over the budget: %s", err, strings.Join(held, ", "))
}

// getClaim returns the request that reads a claim.
func getClaim(c Claim) string {
	return http.MethodGet + " " + strings.Join([]string{"/apis/resource.k8s.io/v1/namespaces", c.Namespace, "resourceclaims", c.Name}, "/")
}
