package pattern

// order is the sequence in which the nodes of a program are computed at a position: a node follows the nodes that it refers to at the same
// position. Nodes that refer to each other, because of repetitions that can be empty, form one group. They are computed until none changes:
// they hold only if another node makes them hold. A negation is never in such a group, because a lookahead does not refer to nodes outside
// of it.
type order struct {
	// nodes are in their order; groups contains the end of each group.
	nodes  []int32
	groups []int32
}

// sorter finds the groups (Tarjan's strongly connected components).
type sorter struct {
	p            *program
	order        order
	index, low   []int32
	open         []bool
	stack        []int32
	next         int32
	continuation []int32
}

// orderOf orders all nodes that start refers to, at any position.
func (p *program) orderOf(start int32) order {
	s := &sorter{p: p, index: make([]int32, len(p.nodes)), low: make([]int32, len(p.nodes)), open: make([]bool, len(p.nodes)), next: 1}
	s.continuation = append(s.continuation, start)
	for len(s.continuation) > 0 {
		last := len(s.continuation) - 1
		n := s.continuation[last]
		s.continuation = s.continuation[:last]
		if s.index[n] == 0 {
			s.visit(n)
		}
	}
	return s.order
}

func (s *sorter) visit(n int32) {
	s.index[n], s.low[n] = s.next, s.next
	s.next++
	s.stack, s.open[n] = append(s.stack, n), true
	switch node := s.p.nodes[n]; node.op {
	case opOr, opAnd:
		s.follow(n, node.a)
		s.follow(n, node.b)
	case opNot:
		s.follow(n, node.a)
	case opChar:
		s.continuation = append(s.continuation, node.b)
	default:
		// It refers to no node.
	}
	if s.low[n] != s.index[n] {
		return
	}
	from := len(s.stack) - 1
	for s.stack[from] != n {
		from--
	}
	for _, member := range s.stack[from:] {
		s.open[member] = false
	}
	s.order.nodes = append(s.order.nodes, s.stack[from:]...)
	s.order.groups = append(s.order.groups, int32(len(s.order.nodes)))
	s.stack = s.stack[:from]
}

func (s *sorter) follow(from, to int32) {
	if s.index[to] == 0 {
		s.visit(to)
		s.low[from] = min(s.low[from], s.low[to])
	} else if s.open[to] {
		s.low[from] = min(s.low[from], s.index[to])
	}
}
