package pattern

// Bounds of determinization: cells are states times classes of characters, steps are computed nodes and compared words.
const (
	maxCells = 512 << 10
	maxSteps = 16 << 20
)

// state is what the characters to the right of a position amount to: which opChar nodes hold at the position, and what stands to its
// right.
type state struct {
	live  []uint64
	right side
	// found says that the pattern occurs further to the right; then nothing else counts.
	found bool
}

// determinizer makes the automaton of a program, state by state.
type determinizer struct {
	p        *program
	start    int32
	order    order
	alphabet *alphabet
	// chars are the opChar nodes; bit has the number of each, by node; reads has those that read each class.
	chars []int32
	bit   []int32
	reads [][]uint64
	// left has what the characters of each class are to the position on their right, and newest to the one on their left.
	left, newest []side

	values []bool
	ids    map[string]uint16
	states []state
	table  *Table
	steps  int
	err    error
}

// determinize makes the table for "start holds at some position of the text", read from the end of the text.
func (p *program) determinize(start int32) (*Table, error) {
	d := &determinizer{p: p, start: start, order: p.orderOf(start), ids: map[string]uint16{}, values: make([]bool, len(p.nodes))}
	d.classify()
	d.table = &Table{alphabet: d.alphabet, classes: len(d.alphabet.in)}
	d.intern(state{live: make([]uint64, d.words()), right: p.right(edge)})
	for i := 0; i < len(d.states) && d.err == nil; i++ {
		d.expand(uint16(i))
	}
	return d.table, d.err
}

// classify makes the alphabet, and what the program reads of each class.
func (d *determinizer) classify() {
	sets := append([]runeSet{{{'\n', '\n'}}, d.p.word}, d.p.sets...)
	if !d.p.uses(atWordBoundary, notAtWordBoundary) {
		sets[1] = nil
	}
	if !d.p.uses(atLastEnd, atLineBegin, atLineEnd) {
		sets[0] = nil
	}
	d.alphabet = alphabetOf(sets)
	d.bit = make([]int32, len(d.p.nodes))
	for _, n := range d.order.nodes {
		if d.p.nodes[n].op == opChar {
			d.bit[n] = int32(len(d.chars))
			d.chars = append(d.chars, n)
		}
	}
	for class := range d.alphabet.in {
		reads := make([]uint64, d.words())
		for i, n := range d.chars {
			if d.alphabet.has(class, 2+int(d.p.nodes[n].a)) {
				reads[i/64] |= 1 << (i % 64)
			}
		}
		d.reads = append(d.reads, reads)
		s := other
		if d.alphabet.has(class, 0) {
			s = newline
		} else if d.alphabet.has(class, 1) {
			s = word
		}
		d.newest, d.left = append(d.newest, s), append(d.left, d.p.left(s))
	}
}

func (d *determinizer) words() int { return (len(d.chars) + 63) / 64 }

// intern has the number of a state, which is new or known.
func (d *determinizer) intern(s state) uint16 {
	if s.found {
		s.live, s.right = make([]uint64, d.words()), edge
	}
	key := bits([]byte{byte(s.right), 0}, s.live)
	if s.found {
		key[1] = 1
	}
	d.step(d.words())
	if id, ok := d.ids[string(key)]; ok || d.err != nil {
		return id
	}
	switch n := len(d.states) + 1; {
	case n > MaxStates:
		d.err = tooManyStates
	case n*d.table.classes > maxCells:
		d.err = tooLarge
	}
	id := uint16(len(d.states))
	d.ids[string(key)] = id
	d.states = append(d.states, s)
	return id
}

// step counts n steps.
func (d *determinizer) step(n int) {
	if d.steps += n; d.steps > maxSteps && d.err == nil {
		d.err = tooComplex
	}
}

// expand adds the transitions of a state: where each class leads to, once the character to the left is known.
func (d *determinizer) expand(id uint16) {
	s, t := d.states[id], d.table
	t.next = append(t.next, make([]uint16, t.classes)...)
	row := t.next[int(id)*t.classes:]
	if s.found {
		t.accept = append(t.accept, true)
		for class := range row {
			row[class] = id
		}
		return
	}
	var known [sides][]uint64
	var found [sides]bool
	for class := range row {
		left := d.left[class]
		if known[left] == nil {
			found[left] = d.compute(s, left)
			known[left] = d.continued()
		}
		to := state{live: make([]uint64, d.words()), right: d.p.right(d.newest[class]), found: found[left]}
		if d.newest[class] == newline && s.right == edge {
			to.right = d.p.right(lastNewline)
		}
		for i, word := range known[left] {
			to.live[i] = word & d.reads[class][i]
		}
		row[class] = d.intern(to)
	}
	t.accept = append(t.accept, d.compute(s, edge))
}

// continued are the opChar nodes whose continuation holds at the computed position: those hold to the left of a character that they read.
func (d *determinizer) continued() []uint64 {
	live := make([]uint64, d.words())
	for i, n := range d.chars {
		if d.values[d.p.nodes[n].b] {
			live[i/64] |= 1 << (i % 64)
		}
	}
	return live
}

// compute has the value of every node at a position with s on its right, and reports that of the first one.
func (d *determinizer) compute(s state, left side) bool {
	from := int32(0)
	for _, to := range d.order.groups {
		group := d.order.nodes[from:to]
		from = to
		for _, n := range group {
			d.values[n] = false
		}
		for changed := true; changed; {
			changed = false
			d.step(len(group))
			for _, n := range group {
				if !d.values[n] && d.value(n, s, left) {
					d.values[n], changed = true, len(group) > 1
				}
			}
		}
	}
	return d.values[d.start]
}

func (d *determinizer) value(id int32, s state, left side) bool {
	switch n := &d.p.nodes[id]; n.op {
	case opTrue:
		return true
	case opChar:
		bit := d.bit[id]
		return s.live[bit/64]&(1<<(bit%64)) != 0
	case opOr:
		return d.values[n.a] || d.values[n.b]
	case opAnd:
		return d.values[n.a] && d.values[n.b]
	case opNot:
		return !d.values[n.a]
	case opAssert:
		return assertion(n.a).holds(left, s.right)
	}
	return false
}
