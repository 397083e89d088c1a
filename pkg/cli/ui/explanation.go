package ui

import "github.com/prism-gpu/prism/pkg/cli/explain"

// Explanation is an explain.Explanation as the page reads it.
type Explanation struct {
	Fits     bool     `json:"fits"`
	Sentence string   `json:"sentence"`
	Requests []string `json:"requests,omitempty"`
	Groups   []Group  `json:"groups,omitempty"`
	Nearest  *Nearest `json:"nearest,omitempty"`
	Changes  []string `json:"changes,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Group is nodes with the same cause and detail.
type Group struct {
	Cause  string   `json:"cause"`
	Detail string   `json:"detail,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Nearest is the device with the fewest claims in the way.
type Nearest struct {
	Node    string   `json:"node"`
	GPU     string   `json:"gpu"`
	Device  string   `json:"device"`
	Start   int      `json:"start"`
	Size    int      `json:"size,omitempty"`
	Alike   int      `json:"alike,omitempty"`
	Holders []Holder `json:"holders,omitempty"`
}

// Holder is a claim in the way.
type Holder struct {
	Namespace   string   `json:"namespace,omitempty"`
	Claim       string   `json:"claim,omitempty"`
	Pods        []string `json:"pods,omitempty"`
	Owner       string   `json:"owner,omitempty"`
	Devices     string   `json:"devices,omitempty"`
	Terminating bool     `json:"terminating,omitempty"`
	Hidden      bool     `json:"hidden,omitempty"`
	Created     int64    `json:"created,omitempty"`
}

// explanationOf converts an explanation; nil stays nil.
func explanationOf(e *explain.Explanation) *Explanation {
	if e == nil {
		return nil
	}
	all := &Explanation{Fits: e.Fits, Sentence: e.Sentence, Requests: e.Requests, Notes: e.Notes}
	for _, g := range e.Groups {
		all.Groups = append(all.Groups, Group{Cause: string(g.Cause), Detail: g.Detail, Nodes: g.Nodes})
	}
	for _, c := range e.Changes {
		all.Changes = append(all.Changes, c.Text)
	}
	if n := e.Nearest; n != nil {
		all.Nearest = &Nearest{Node: n.Node, GPU: n.GPU, Device: n.Device, Start: n.Start, Size: n.Size, Alike: n.Alike}
		for _, h := range n.Holders {
			all.Nearest.Holders = append(all.Nearest.Holders, Holder{
				Namespace: h.Namespace, Claim: h.Claim, Pods: h.Pods, Owner: h.Owner, Devices: h.Devices,
				Terminating: h.Terminating, Hidden: h.Hidden, Created: h.Created,
			})
		}
	}
	return all
}
