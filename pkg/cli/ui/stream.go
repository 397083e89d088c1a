package ui

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// interval is the time between two events of a stream.
	interval = time.Second
	// keepAlive is the time after which a stream without events writes a comment, so that a browser that is gone is noticed.
	keepAlive = 15 * time.Second
)

// cut separates NAMESPACE/NAME.
func cut(pod string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(pod, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// events streams the picture: all of it, then changes, one event a second at most.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streaming <- struct{}{}:
		defer func() { <-s.streaming }()
	default:
		http.Error(w, fmt.Sprintf("%d browser tabs show the page already", streams), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	out := stream{w, http.NewResponseController(w)}
	if !out.write(": kubectl prism ui\n\n") {
		return
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	var version uint64
	for {
		event, newest, changed, err := s.hub.since(version)
		if err != nil {
			return
		}
		if event != nil {
			if !out.write("data: "+string(event)+"\n\n") || !pause(r, interval) {
				return
			}
			version = newest
			continue
		}
		select {
		case <-changed:
		case <-alive.C:
			if !out.write(":\n\n") {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// pause waits; false if the browser is gone.
func pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// stream writes events with a time limit each.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
}

// write reports whether the text was written.
func (s stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := s.Write([]byte(text)); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
