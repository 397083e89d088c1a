package reports

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// maxClaims limits the claims in the answer of a node; claimCost is the approximate memory of one.
const maxClaims, claimCost = 1024, 256

// nodeList is the answer of a node, in the order of its items' keys.
type nodeList[T item] struct {
	items []T
	// claims are in the first answer of a node with sessions.
	claims []session.Claim
	// cost is the memory of items and claims; read is the number of received items, including omitted ones.
	cost, read int
	// last is the key of the last received item, or "". The node has more items after it.
	last string
	more bool
}

// bounds limit the part of a node's answer that is read.
type bounds struct {
	// bytes limits the answer, cost the memory of the kept items.
	bytes int64
	cost  int
	// items limits the read items, kept the kept ones.
	items, kept int
}

// full reports whether no more items are read.
func (l *nodeList[T]) full(b bounds) bool {
	return l.read >= b.items || len(l.items) >= b.kept || l.cost >= b.cost
}

// readList reads a node's list after a key, as far as the bounds allow: many items of one tenant do not make a node silent for others.
// Items that keep refuses, or that are not in the order of their keys, are omitted.
func readList[T item](body io.Reader, after string, b bounds, keep func(session.Session) bool) (list nodeList[T], err error) {
	limited := &io.LimitedReader{R: body, N: b.bytes}
	decoder := json.NewDecoder(limited)
	defer func() {
		if err != nil && limited.N == 0 {
			list.more, err = true, nil
		}
	}()
	if list.claims, err = openList(decoder, kindOf[T]().resource); err != nil {
		return list, err
	}
	list.cost = claimCost * len(list.claims)
	list.last = after
	for decoder.More() {
		if list.full(b) {
			list.more = true
			return list, nil
		}
		var one T
		if err := decoder.Decode(&one); err != nil {
			return list, err
		}
		of := one.process()
		at := key(of)
		if at <= list.last {
			continue // plugins of earlier versions answer from the first report on
		}
		list.last = at
		list.read++
		if keep(of) {
			list.items = append(list.items, one)
			list.cost += one.cost()
		}
	}
	_, err = decoder.Token() // More is also false if the answer breaks off
	// A plugin that knows the limit does not send more.
	list.more = err == nil && list.read >= b.items
	return list, err
}

// openList reads up to the first item, and returns the claims before it; other versions may send other fields.
func openList(decoder *json.Decoder, resource string) (claims []session.Claim, err error) {
	if err := expect(decoder, json.Delim('{'), resource); err != nil {
		return nil, err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		if key == resource {
			return claims, expect(decoder, json.Delim('['), resource)
		}
		var other json.RawMessage
		if err := decoder.Decode(&other); err != nil {
			return nil, err
		}
		if key == "claims" && json.Unmarshal(other, &claims) == nil {
			claims = claims[:min(len(claims), maxClaims)]
		}
	}
	return nil, fmt.Errorf("missing list of %s: %w", resource, io.ErrUnexpectedEOF)
}

func expect(decoder *json.Decoder, want json.Delim, resource string) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("unexpected token %v, want %v at the beginning of the list of %s", token, want, resource)
	}
	return err
}
