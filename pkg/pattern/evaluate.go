package pattern

// evaluator computes the nodes of a program at a position. It numbers nodes by their order.
type evaluator struct {
	nodes []node
	// cycles are the groups of nodes that refer to each other.
	cycles []struct{ from, to int }
	start  int32
	// sets and rests contain the set and the continuation of each opChar node, whose a is its number among them.
	sets, rests []int32
	values      []byte
}

// position is the result of the nodes at a position.
type position struct {
	// continued are the opChar nodes whose continuation holds here: they hold to the left of a character that they read.
	continued []uint64
	// found: the pattern occurs here.
	found bool
}

// evaluator prepares the nodes that start refers to.
func (p *program) evaluator(start int32) *evaluator {
	order := p.orderOf(start)
	to := make([]int32, len(p.nodes))
	for i, n := range order.nodes {
		to[n] = int32(i)
	}
	e := &evaluator{start: to[start], values: make([]byte, len(order.nodes))}
	for _, id := range order.nodes {
		n := p.nodes[id]
		switch n.op {
		case opChar:
			e.sets, e.rests = append(e.sets, n.a), append(e.rests, to[n.b])
			n.a, n.b = int32(len(e.sets)-1), 0
		case opOr, opAnd:
			n.a, n.b = to[n.a], to[n.b]
		case opNot:
			n.a = to[n.a]
		default:
			// It refers to no node.
		}
		e.nodes = append(e.nodes, n)
	}
	from := 0
	for _, to := range order.groups {
		if int(to)-from > 1 {
			e.cycles = append(e.cycles, struct{ from, to int }{from, int(to)})
		}
		from = int(to)
	}
	return e
}

// words returns the number of words with a bit for each opChar node.
func (e *evaluator) words() int { return (len(e.sets) + 63) / 64 }

// compute returns the position with s on its right and left on its left, and the number of computed nodes.
func (e *evaluator) compute(s state, left side) (position, int) {
	var holds [assertions]byte
	for a := range holds {
		if assertion(a).holds(left, s.right) {
			holds[a] = 1
		}
	}
	done, steps := 0, 0
	for _, cycle := range e.cycles {
		e.pass(done, cycle.from, s.live, &holds)
		clear(e.values[cycle.from:cycle.to])
		for e.pass(cycle.from, cycle.to, s.live, &holds) {
			steps += cycle.to - cycle.from
		}
		done = cycle.to
	}
	e.pass(done, len(e.nodes), s.live, &holds)
	out := position{continued: make([]uint64, e.words()), found: e.values[e.start] != 0}
	for i, rest := range e.rests {
		out.continued[i/64] |= uint64(e.values[rest]) << (i % 64)
	}
	return out, steps + len(e.nodes)
}

// pass computes the nodes of a range once, and reports whether one changed.
func (e *evaluator) pass(from, to int, live []uint64, holds *[assertions]byte) bool {
	changed := byte(0)
	for i := from; i < to; i++ {
		n, v := &e.nodes[i], byte(0)
		switch n.op {
		case opTrue:
			v = 1
		case opFalse:
		case opChar:
			v = byte(live[n.a/64]>>(n.a%64)) & 1
		case opOr:
			v = e.values[n.a] | e.values[n.b]
		case opAnd:
			v = e.values[n.a] & e.values[n.b]
		case opNot:
			v = 1 - e.values[n.a]
		case opAssert:
			v = holds[n.a]
		}
		changed |= v ^ e.values[i]
		e.values[i] = v
	}
	return changed != 0
}
