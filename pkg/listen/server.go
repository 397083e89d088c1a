package listen

import (
	"bytes"
	"log"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// failures logs the server's own failures: panics of handlers. It omits failures of clients, since any pod can cause them as often as it
// wants.
var failures = log.New(panics{}, "", 0)

type panics struct{}

// Write implements io.Writer, for one message.
func (panics) Write(message []byte) (int, error) {
	if !bytes.Contains(message, []byte("panic serving")) {
		return len(message), nil
	}
	return log.Writer().Write(message)
}

// PageServer serves metrics and probes, with timeouts for clients.
func PageServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: pageIdle, MaxHeaderBytes: maxHeader,
		ErrorLog: failures,
	}
}

// AdmissionServer serves API servers. The handler limits the time of answers.
func AdmissionServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: boundRequests(handler, RequestMemory), ReadHeaderTimeout: headerTimeout, IdleTimeout: admissionIdle, MaxHeaderBytes: maxHeader,
		ErrorLog: failures,
	}
}

// boundRequests refuses requests of clients above their memory limit with status 503. A connection carries 250 requests at once.
func boundRequests(handler http.Handler, limits Limits) http.Handler {
	taken := &taken{limits: limits, of: map[netip.Addr]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, bytes := addressOf(r.RemoteAddr), requestMemory(r)
		if !taken.enter(client, bytes) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many concurrent requests of this client or of all clients; try again later", http.StatusServiceUnavailable)
			return
		}
		defer taken.leave(client, bytes)
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		handler.ServeHTTP(w, r)
	})
}

// requestMemory is the maximum memory, in bytes, of a request while it is answered. A body of unknown length counts with the maximum
// length.
func requestMemory(r *http.Request) int {
	body := r.ContentLength
	if body < 0 {
		body = maxBody
	}
	return requestBase + requestCopies*int(min(body, maxBody))
}

// taken counts the memory of requests by client.
type taken struct {
	limits Limits

	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

func (t *taken) enter(client netip.Addr, bytes int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all+bytes > t.limits.Total || t.of[client]+bytes > t.limits.PerClient {
		return false
	}
	t.all += bytes
	t.of[client] += bytes
	return true
}

func (t *taken) leave(client netip.Addr, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all -= bytes
	if t.of[client] -= bytes; t.of[client] == 0 {
		delete(t.of, client)
	}
}
