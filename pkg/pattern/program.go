package pattern

import (
	"math"
	"strconv"
)

// op is the operation of a node at a position of a text.
type op uint8

const (
	opTrue op = iota
	opFalse
	// opChar: the character to the right is in set a, and node b holds after it.
	opChar
	opOr  // a or b
	opAnd // a and b
	opNot // not a
	// opAssert: assertion a holds.
	opAssert
)

// node is one node of a program; a and b are indexes of nodes unless op says otherwise.
type node struct {
	op   op
	a, b int32
}

// The nodes of every program.
const (
	nodeTrue int32 = iota
	nodeFalse
)

// Limits of a program. Visits also count steps that add no node, such as repetitions of nothing.
const (
	maxNodes  = 16 << 10
	maxVisits = 64 << 10
	unbounded = math.MaxInt32
)

// program is the boolean program of a pattern: node n holds at a position if the rest of the text matches the part of the pattern that n
// stands for. Equal nodes are one node. If a program exceeded its limits, its error is set and its nodes are useless.
type program struct {
	nodes  []node
	known  map[node]int32
	sets   []runeSet
	setIDs map[string]int32
	// asserts contains the bit of every assertion in use; word are the characters that \b calls words.
	asserts uint16
	word    runeSet
	visits  int
	err     error
}

func newProgram() *program {
	return &program{
		nodes:  []node{{op: opTrue}, {op: opFalse}},
		known:  map[node]int32{},
		setIDs: map[string]int32{},
	}
}

// refuse stores the first reason; lowering unwinds after it.
func (p *program) refuse(reason error) int32 {
	if p.err == nil {
		p.err = reason
	}
	return nodeFalse
}

// visit counts one step of lowering, and reports whether to continue.
func (p *program) visit() bool {
	if p.visits++; p.visits > maxVisits {
		p.refuse(tooComplex)
	}
	return p.err == nil
}

// place adds a node that equals no other, so that it can be changed.
func (p *program) place(n node) int32 {
	if len(p.nodes) >= maxNodes {
		return p.refuse(tooComplex)
	}
	p.nodes = append(p.nodes, n)
	return int32(len(p.nodes) - 1)
}

func (p *program) add(n node) int32 {
	if id, ok := p.known[n]; ok {
		return id
	}
	id := p.place(n)
	if p.err == nil {
		p.known[n] = id
	}
	return id
}

// set returns the index of a set of characters, which members lists if key is new.
func (p *program) set(key string, members func() runeSet) int32 {
	id, ok := p.setIDs[key]
	if !ok {
		id = int32(len(p.sets))
		p.sets = append(p.sets, members())
		p.setIDs[key] = id
	}
	return id
}

func (p *program) one(r rune) int32 {
	return p.set("="+strconv.Itoa(int(r)), func() runeSet { return runeSet{{r, r}} })
}

func (p *program) char(set, rest int32) int32 {
	if rest == nodeFalse {
		return nodeFalse
	}
	return p.add(node{op: opChar, a: set, b: rest})
}

func (p *program) or(a, b int32) int32 {
	switch {
	case a == nodeTrue || b == nodeTrue:
		return nodeTrue
	case a == nodeFalse || a == b:
		return b
	case b == nodeFalse:
		return a
	}
	return p.add(node{op: opOr, a: a, b: b})
}

func (p *program) and(a, b int32) int32 {
	switch {
	case a == nodeFalse || b == nodeFalse:
		return nodeFalse
	case a == nodeTrue || a == b:
		return b
	case b == nodeTrue:
		return a
	}
	return p.add(node{op: opAnd, a: a, b: b})
}

func (p *program) not(a int32) int32 {
	switch a {
	case nodeTrue:
		return nodeFalse
	case nodeFalse:
		return nodeTrue
	}
	return p.add(node{op: opNot, a: a})
}

func (p *program) assert(a assertion, rest int32) int32 {
	p.asserts |= 1 << a
	return p.and(p.add(node{op: opAssert, a: int32(a)}), rest)
}

// loop returns least to most repetitions of body, followed by rest. A repetition may stop if stop holds, which is rest or stricter.
func (p *program) loop(least, most int, rest, stop int32, body func(rest int32) int32) int32 {
	current := rest
	if most == unbounded {
		// The node refers to itself through its body.
		current = p.place(node{op: opOr, a: stop, b: nodeFalse})
		again := body(current)
		if p.err != nil {
			return nodeFalse
		}
		// Repeating nothing changes nothing.
		if again != current {
			p.nodes[current].b = again
		}
	} else {
		for i := most; i > least && p.visit(); i-- {
			current = p.or(body(current), stop)
		}
	}
	for i := 0; i < least && p.visit(); i++ {
		current = body(current)
	}
	return current
}

// charLoop returns least to most characters of a set. An atomic loop takes as many as possible: it stops early only before another
// character.
func (p *program) charLoop(set int32, least, most int, atomic bool, rest int32) int32 {
	stop := rest
	if atomic {
		stop = p.and(p.not(p.char(set, nodeTrue)), rest)
	}
	return p.loop(least, most, rest, stop, func(rest int32) int32 { return p.char(set, rest) })
}
