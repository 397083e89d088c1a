package daemon

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// sessions are the initialised libraries of a node. A session exists until
// its last nvmlShutdown, or until its last connection is closed.
type sessions struct {
	node *model.Node

	mu   sync.Mutex
	last uint64
	open map[uint64]*openSession
}

type openSession struct {
	*model.Session
	connections map[*connection]struct{}
}

// newSessions starts numbers from the clock, so that a process never takes a
// session of an earlier daemon as its own.
func newSessions(node *model.Node) *sessions {
	return &sessions{node: node, last: uint64(time.Now().UnixNano()), open: map[uint64]*openSession{}}
}

// of returns the sessions for one connection.
func (s *sessions) of(c *connection) connectionSessions { return connectionSessions{s, c} }

// count is the number of open sessions.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// attached lists the processes whose sessions have a GPU attached.
func (s *sessions) attached(gpu int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	users := map[string]bool{}
	for _, session := range s.open {
		for c := range session.connections {
			if session.Attached(gpu) {
				users[fmt.Sprintf("%s (%d)", c.caller.Process, c.caller.PID)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(users))
}

// leave ends the sessions that only this connection used.
func (s *sessions) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, session := range s.open {
		if _, used := session.connections[c]; !used {
			continue
		}
		delete(session.connections, c)
		if len(session.connections) == 0 {
			delete(s.open, id)
			session.Close()
		}
	}
}

// connectionSessions is abi.Sessions for one connection.
type connectionSessions struct {
	*sessions
	connection *connection
}

// Begin starts a session that this connection uses.
func (s connectionSessions) Begin(library model.DriverVersion, nodes model.DeviceNodes) (uint64, error) {
	session, err := s.node.OpenWith(library, nodes)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.open[s.last] = &openSession{Session: session, connections: map[*connection]struct{}{s.connection: {}}}
	return s.last, nil
}

// Find returns a session, and records that this connection uses it.
func (s connectionSessions) Find(id uint64) *model.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.open[id]
	if session == nil {
		return nil
	}
	session.connections[s.connection] = struct{}{}
	return session.Session
}

// End closes a session.
func (s connectionSessions) End(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.open[id]; session != nil {
		delete(s.open, id)
		session.Close()
	}
}
