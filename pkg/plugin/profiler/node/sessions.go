package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// maxCommand is the maximum size of a command, in bytes.
const maxCommand = 256 << 10

// Sessions provides the processes that wait to be recorded.
type Sessions interface {
	// List returns the sessions of a namespace, or of all for "", in any order, and Claims its claims that are armed on demand. With the
	// namespace's UID, they omit other namespaces of that name.
	List(namespace, namespaceUID string) []session.Session
	Claims(namespace, namespaceUID string) []session.Claim
	// Command carries out a command; session.ErrInvalid if it is invalid.
	Command(ctx context.Context, c session.Command) (session.Accepted, error)
}

// sessionList is an answer. Controllers read the sessions, its last field, one by one.
type sessionList struct {
	Claims   []session.Claim   `json:"claims,omitempty"`
	Now      time.Time         `json:"now"`
	Sessions []session.Session `json:"sessions"`
}

// sessions answers with the sessions of a namespace, like list, and with the node's clock. The first page has the claims, too.
func (s *Server) sessions(w http.ResponseWriter, r *http.Request) {
	q := parsePage(r)
	found := pageOf(q, s.options.Sessions.List(q.namespace, q.namespaceUID), func(one session.Session) string { return one.ID })
	body := sessionList{Now: time.Now().UTC(), Sessions: found}
	if q.id == "" && q.after == "" {
		body.Claims = s.options.Sessions.Claims(q.namespace, q.namespaceUID)
	}
	answer(w, http.StatusOK, body)
}

// command carries out a command, and answers when its files are written.
func (s *Server) command(w http.ResponseWriter, r *http.Request) {
	var c session.Command
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&c)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		answer(w, http.StatusRequestEntityTooLarge, map[string]string{"error": fmt.Sprintf("a command must be at most %d bytes", maxCommand)})
		return
	}
	var accepted session.Accepted
	if err != nil {
		err = fmt.Errorf("%w: %w", session.ErrInvalid, err)
	} else {
		accepted, err = s.options.Sessions.Command(r.Context(), c)
	}
	switch {
	case err == nil:
		answer(w, http.StatusOK, accepted)
	case errors.Is(err, session.ErrInvalid):
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
	case s.options.Busy(err):
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	default:
		s.refuse(w, err)
	}
}
