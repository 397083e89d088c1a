package pattern

// assertion is a condition of a pattern on a position without reading a character.
type assertion uint8

const (
	atBegin   assertion = iota // \A, and ^ without (?m)
	atEnd                      // \z
	atLastEnd                  // \Z, and $ without (?m): the end, or a newline and the end
	atLineBegin
	atLineEnd
	atWordBoundary
	notAtWordBoundary
	assertions
)

// side is the content on one side of a position, as far as assertions depend on it.
type side uint8

const (
	// edge: the text begins or ends here.
	edge side = iota
	// lastNewline, only on the right: a newline, and then the end.
	lastNewline
	newline
	word
	other
	sides
)

func (a assertion) holds(left, right side) bool {
	switch a {
	case atBegin:
		return left == edge
	case atEnd:
		return right == edge
	case atLastEnd:
		return right == edge || right == lastNewline
	case atLineBegin:
		return left == edge || left == newline
	case atLineEnd:
		return right == edge || right == lastNewline || right == newline
	case atWordBoundary:
		return (left == word) != (right == word)
	default:
		return (left == word) == (right == word)
	}
}

// uses reports whether the program has one of the assertions.
func (p *program) uses(asserts ...assertion) bool {
	for _, a := range asserts {
		if p.asserts&(1<<a) != 0 {
			return true
		}
	}
	return false
}

// right reduces s to the differences that the program can observe on the right of a position: fewer sides create fewer states.
func (p *program) right(s side) side {
	switch {
	case s == word && !p.uses(atWordBoundary, notAtWordBoundary):
		return other
	case s == edge && !p.uses(atEnd, atLastEnd, atLineEnd):
		return other
	case s == lastNewline && !p.uses(atLastEnd), s == newline:
		if p.uses(atLineEnd) {
			return newline
		}
		return other
	}
	return s
}

// left does the same for the left.
func (p *program) left(s side) side {
	switch {
	case s == word && !p.uses(atWordBoundary, notAtWordBoundary):
		return other
	case s == newline && !p.uses(atLineBegin), s == edge && !p.uses(atBegin, atLineBegin):
		return other
	}
	return s
}
