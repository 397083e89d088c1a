package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// hub holds the newest picture, encoded, and wakes the streams of browsers at each change. It is safe for concurrent use.
type hub struct {
	mu sync.Mutex
	// version counts changes. Each part of the picture knows the version of its last change.
	version        uint64
	meta           []byte
	pods, loads    encoded
	nodes          []encoded
	nodesRecreated uint64
	// changed is closed at the next change.
	changed chan struct{}
}

// encoded is a part of the picture in JSON.
type encoded struct {
	name    string
	json    []byte
	version uint64
}

// update is an event for the page: all nodes, or only those that changed.
type update struct {
	Full  bool              `json:"full,omitempty"`
	Meta  json.RawMessage   `json:"meta"`
	Nodes []json.RawMessage `json:"nodes"`
	Pods  json.RawMessage   `json:"pods,omitempty"`
	Loads json.RawMessage   `json:"loads,omitempty"`
}

func newHub() *hub { return &hub{changed: make(chan struct{})} }

// publish replaces the picture.
func (h *hub) publish(s *State) error {
	meta, err := json.Marshal(s.Meta)
	if err != nil {
		return fmt.Errorf("encoding the state of the page: %w", err)
	}
	pods, err := json.Marshal(s.Pods)
	if err != nil {
		return fmt.Errorf("encoding the pods: %w", err)
	}
	nodes := make([]encoded, len(s.Nodes))
	for i := range s.Nodes {
		text, err := json.Marshal(&s.Nodes[i])
		if err != nil {
			return fmt.Errorf("encoding node %s: %w", s.Nodes[i].Name, err)
		}
		nodes[i] = encoded{name: s.Nodes[i].Name, json: text}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	h.meta = meta
	if !bytes.Equal(h.pods.json, pods) {
		h.pods = encoded{json: pods, version: h.version}
	}
	if !slices.EqualFunc(h.nodes, nodes, func(a, b encoded) bool { return a.name == b.name }) {
		h.nodesRecreated = h.version
	}
	for i := range nodes {
		nodes[i].version = h.version
		if h.nodesRecreated != h.version && bytes.Equal(h.nodes[i].json, nodes[i].json) {
			nodes[i].version = h.nodes[i].version
		}
	}
	h.nodes = nodes
	h.wake()
	return nil
}

// publishLoads replaces the loads of GPUs. Before the first picture they wait for it.
func (h *hub) publishLoads(l *Loads) error {
	loads, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the loads of GPUs: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(h.loads.json, loads) {
		return nil
	}
	if h.version > 0 {
		h.version++
	}
	h.loads = encoded{json: loads, version: h.version}
	h.wake()
	return nil
}

// wake wakes the streams. The caller holds the lock.
func (h *hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// since returns the changes after a version as JSON; nil if there are none. It returns the newest version, and a channel that is closed at
// the next change.
func (h *hub) since(version uint64) (event []byte, newest uint64, changed <-chan struct{}, err error) {
	h.mu.Lock()
	u := update{Meta: h.meta, Nodes: []json.RawMessage{}}
	newest, changed = h.version, h.changed
	if newest > version {
		u.Full = h.nodesRecreated > version || version == 0
		for _, n := range h.nodes {
			if u.Full || n.version > version {
				u.Nodes = append(u.Nodes, n.json)
			}
		}
		if u.Full || h.pods.version > version {
			u.Pods = h.pods.json
		}
		if u.Full || h.loads.version > version {
			u.Loads = h.loads.json
		}
	}
	h.mu.Unlock()
	if newest == version {
		return nil, newest, changed, nil
	}
	event, err = json.Marshal(u)
	return event, newest, changed, err
}
