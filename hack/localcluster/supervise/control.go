//go:build linux

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Order is an action of a supervisor on a service.
type Order string

// The orders. Start and Restart return when the service answers its probe; Launch does not wait.
const (
	Launch  Order = "launch"
	Start   Order = "start"
	Stop    Order = "stop"
	Restart Order = "restart"
	List    Order = "list"
)

// MaxSocketPath is the longest path of a unix socket on Linux.
const MaxSocketPath = 107

type request struct {
	Order   Order  `json:"order"`
	Service string `json:"service,omitempty"`
}

type reply struct {
	Error    string   `json:"error,omitempty"`
	Services []Status `json:"services,omitempty"`
}

// Supervisor runs services on request.
type Supervisor struct {
	units []*unit
}

// New prepares the services; none is started. env is the environment of all of them.
func New(services []Service, env []string, reaper *Reaper) *Supervisor {
	s := &Supervisor{}
	for _, service := range services {
		s.units = append(s.units, &unit{Service: service, env: env, reaper: reaper})
	}
	return s
}

// Listen opens the control socket, and replaces the socket of an earlier supervisor.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("removing the old control socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	return listener, nil
}

// Serve accepts orders, each on a separate connection, until the listener fails.
func (s *Supervisor) Serve(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accepting an order: %w", err)
		}
		go s.answer(conn)
	}
}

func (s *Supervisor) answer(conn net.Conn) {
	defer conn.Close()
	var ask request
	var answer reply
	if err := json.NewDecoder(conn).Decode(&ask); err != nil {
		answer.Error = fmt.Sprintf("reading an order: %v", err)
	} else if answer.Services, err = s.obey(ask); err != nil {
		answer.Error = err.Error()
	}
	// A caller that has gone needs no answer.
	_ = json.NewEncoder(conn).Encode(answer)
}

func (s *Supervisor) obey(ask request) ([]Status, error) {
	if ask.Order == List {
		var all []Status
		for _, u := range s.units {
			all = append(all, u.status())
		}
		return all, nil
	}
	for _, u := range s.units {
		if u.Name == ask.Service {
			return nil, u.obey(ask.Order)
		}
	}
	return nil, fmt.Errorf("unknown service %q", ask.Service)
}

func (u *unit) obey(order Order) error {
	switch order {
	case Launch:
		return u.start()
	case Stop:
		return u.stop()
	case Restart:
		if err := u.stop(); err != nil {
			return err
		}
	case Start:
	default:
		return fmt.Errorf("unknown order %q", order)
	}
	if err := u.start(); err != nil {
		return err
	}
	return u.await()
}

// Send sends an order to the supervisor behind the socket and returns its answer.
func Send(socket string, order Order, service string) ([]Status, error) {
	conn, err := net.DialTimeout("unix", socket, probeTimeout)
	if err != nil {
		return nil, fmt.Errorf("reaching the supervisor: %w", err)
	}
	defer conn.Close()
	limit := startLimit + 3*stopGrace
	if order == List {
		limit = probeTimeout
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, fmt.Errorf("reaching the supervisor: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(request{Order: order, Service: service}); err != nil {
		return nil, fmt.Errorf("sending an order: %w", err)
	}
	var answer reply
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading the supervisor's answer: %w", err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Services, nil
}
