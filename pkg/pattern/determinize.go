package pattern

import "slices"

// Limits of determinization: cells are states times classes of characters, steps are computed nodes and compared words.
const (
	maxCells = 512 << 10
	maxSteps = 8 << 20
)

// state summarizes the characters to the right of a position: the opChar nodes that hold at the position, and the side to its right.
type state struct {
	live  []uint64
	right side
	// found: the pattern occurs further to the right; then nothing else matters.
	found bool
}

// determinizer creates the automaton of a program, state by state.
type determinizer struct {
	p         *program
	evaluator *evaluator
	alphabet  *alphabet
	// reads contains, as bits, the opChar nodes that read each class. newest is the side that a character of the class forms for the
	// position on its left, left the side for the position on its right.
	reads        [][]uint64
	newest, left []side

	ids    map[string]uint16
	states []state
	table  *Table
	steps  int
	err    error
	// live and key are reused for every transition.
	live []uint64
	key  []byte
}

// determinizer prepares the automaton for "start holds at some position of the text", read from the end of the text.
func (p *program) determinizer(start int32) *determinizer {
	d := &determinizer{p: p, evaluator: p.evaluator(start), ids: map[string]uint16{}}
	d.live = make([]uint64, d.evaluator.words())
	d.classify()
	d.table = &Table{alphabet: d.alphabet, classes: len(d.alphabet.in)}
	return d
}

// run returns the table.
func (d *determinizer) run() (*Table, error) {
	d.intern(d.p.right(edge), false)
	for i := 0; i < len(d.states) && d.err == nil; i++ {
		d.expand(uint16(i))
	}
	return d.table, d.err
}

// classify creates the alphabet, and the nodes that read each class.
func (d *determinizer) classify() {
	sets := append([]runeSet{{{'\n', '\n'}}, d.p.word}, d.p.sets...)
	if !d.p.uses(atLastEnd, atLineBegin, atLineEnd) {
		sets[0] = nil
	}
	if !d.p.uses(atWordBoundary, notAtWordBoundary) {
		sets[1] = nil
	}
	d.alphabet = alphabetOf(sets)
	for class := range d.alphabet.in {
		reads := make([]uint64, d.evaluator.words())
		for i, set := range d.evaluator.sets {
			if d.alphabet.has(class, 2+int(set)) {
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

// intern returns the number of the state with d.live, and adds the state if it is new.
func (d *determinizer) intern(right side, found bool) uint16 {
	if found {
		clear(d.live)
		right = sides
	}
	d.key = bits(append(d.key[:0], byte(right)), d.live)
	d.step(len(d.live))
	if id, ok := d.ids[string(d.key)]; ok || d.err != nil {
		return id
	}
	switch n := len(d.states) + 1; {
	case n > MaxStates:
		d.err = tooManyStates
	case n*d.table.classes > maxCells:
		d.err = tooLarge
	}
	id := uint16(len(d.states))
	d.ids[string(d.key)] = id
	d.states = append(d.states, state{live: slices.Clone(d.live), right: right, found: found})
	return id
}

// step counts n steps.
func (d *determinizer) step(n int) {
	if d.steps += n; d.steps > maxSteps && d.err == nil {
		d.err = tooComplex
	}
}

// expand adds the transitions of a state: the target of each class, once the character to the left is known.
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
	var known [sides]*position
	at := func(left side) *position {
		if known[left] == nil {
			p, steps := d.evaluator.compute(s, left)
			d.step(steps)
			known[left] = &p
		}
		return known[left]
	}
	for class := range row {
		position, right := at(d.left[class]), d.p.right(d.newest[class])
		if d.newest[class] == newline && s.right == edge {
			right = d.p.right(lastNewline)
		}
		for i, word := range position.continued {
			d.live[i] = word & d.reads[class][i]
		}
		row[class] = d.intern(right, position.found)
	}
	t.accept = append(t.accept, at(d.p.left(edge)).found)
}
