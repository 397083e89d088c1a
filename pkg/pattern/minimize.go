package pattern

// minimize merges states that no text distinguishes (Hopcroft's algorithm), and then classes that lead to the same states from every state.
func (t *Table) minimize() {
	t.mergeClasses()
	r := newRefinement(t)
	for len(r.pending) > 0 {
		last := len(r.pending) - 1
		block := r.pending[last]
		r.pending = r.pending[:last]
		r.waiting[block] = false
		members := append([]int32(nil), r.states[r.from[block]:r.to[block]]...)
		for class := range t.classes {
			r.split(members, class)
		}
	}
	next := make([]uint16, len(r.from)*t.classes)
	accept := make([]bool, len(r.from))
	for block, at := range r.from {
		s := int(r.states[at])
		accept[block] = t.accept[s]
		for class := range t.classes {
			next[block*t.classes+class] = uint16(r.block[t.next[s*t.classes+class]])
		}
	}
	t.start = uint16(r.block[t.start])
	t.next, t.accept = next, accept
	t.mergeClasses()
	t.findFinal()
}

// refinement is a partition of the states into blocks, which are parts of states: from[b] to to[b].
type refinement struct {
	states, at, block []int32
	from, to          []int32
	// marked is the number of states of a block, its first ones, that lead into the block that splits.
	marked  []int32
	pending []int32
	waiting []bool
	// sources[first[s*classes+c]:first[s*classes+c+1]] are the states from which class c leads to state s.
	first, sources []int32
	classes        int
}

func newRefinement(t *Table) *refinement {
	n := len(t.accept)
	r := &refinement{states: make([]int32, 0, n), at: make([]int32, n), block: make([]int32, n), classes: t.classes}
	for _, accept := range []bool{true, false} {
		from := int32(len(r.states))
		for s := range n {
			if t.accept[s] == accept {
				r.at[s], r.block[s] = int32(len(r.states)), int32(len(r.from))
				r.states = append(r.states, int32(s))
			}
		}
		if int(from) < len(r.states) {
			r.add(from, int32(len(r.states)))
			r.push(int32(len(r.from) - 1))
		}
	}
	r.first = make([]int32, n*t.classes+1)
	for i, to := range t.next {
		r.first[int(to)*t.classes+i%t.classes+1]++
	}
	for i := 1; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	r.sources = make([]int32, len(t.next))
	filled := append([]int32(nil), r.first...)
	for i, to := range t.next {
		cell := int(to)*t.classes + i%t.classes
		r.sources[filled[cell]] = int32(i / t.classes)
		filled[cell]++
	}
	return r
}

func (r *refinement) add(from, to int32) {
	r.from, r.to, r.marked, r.waiting = append(r.from, from), append(r.to, to), append(r.marked, 0), append(r.waiting, false)
}

func (r *refinement) push(block int32) {
	if !r.waiting[block] {
		r.waiting[block] = true
		r.pending = append(r.pending, block)
	}
}

// split divides every block into the states that class leads to one of the members from, and the others.
func (r *refinement) split(members []int32, class int) {
	var divided []int32
	for _, s := range members {
		cell := int(s)*r.classes + class
		for _, source := range r.sources[r.first[cell]:r.first[cell+1]] {
			if block := r.block[source]; r.mark(source, block) {
				divided = append(divided, block)
			}
		}
	}
	for _, block := range divided {
		middle := r.from[block] + r.marked[block]
		r.marked[block] = 0
		if middle == r.to[block] {
			continue
		}
		fresh := int32(len(r.from))
		if middle-r.from[block] <= r.to[block]-middle {
			r.add(r.from[block], middle)
			r.from[block] = middle
		} else {
			r.add(middle, r.to[block])
			r.to[block] = middle
		}
		for _, s := range r.states[r.from[fresh]:r.to[fresh]] {
			r.block[s] = fresh
		}
		// The new block is the smaller one, and suffices if the other was used already; if that one waits, both are needed.
		r.push(fresh)
	}
}

// mark moves a state to the marked ones of its block, and reports whether it is the first.
func (r *refinement) mark(s, block int32) bool {
	end := r.from[block] + r.marked[block]
	at := r.at[s]
	if at < end {
		return false
	}
	swapped := r.states[end]
	r.states[at], r.states[end] = swapped, s
	r.at[swapped], r.at[s] = at, end
	r.marked[block]++
	return r.marked[block] == 1
}

// mergeClasses merges classes that lead to the same states from every state.
func (t *Table) mergeClasses() {
	ids := map[string]uint16{}
	rename := make([]uint16, t.classes)
	var kept []int
	column := make([]byte, 2*len(t.accept))
	for class := range t.classes {
		for s := range t.accept {
			to := t.next[s*t.classes+class]
			column[2*s], column[2*s+1] = byte(to), byte(to>>8)
		}
		id, ok := ids[string(column)]
		if !ok {
			id = uint16(len(kept))
			ids[string(column)] = id
			kept = append(kept, class)
		}
		rename[class] = id
	}
	next := make([]uint16, 0, len(t.accept)*len(kept))
	for s := range t.accept {
		for _, class := range kept {
			next = append(next, t.next[s*t.classes+class])
		}
	}
	t.alphabet.rename(rename)
	t.next, t.classes = next, len(kept)
}

// findFinal finds the states that no character leaves: there the rest of the text need not be read.
func (t *Table) findFinal() {
	t.final = make([]bool, len(t.accept))
	for s := range t.final {
		t.final[s] = true
		for class := range t.classes {
			t.final[s] = t.final[s] && int(t.next[s*t.classes+class]) == s
		}
	}
}
