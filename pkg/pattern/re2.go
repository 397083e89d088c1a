package pattern

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"unicode"
)

// asciiWord are the word characters of \b in RE2.
var asciiWord = runeSet{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}

// lowerRE2 adds the nodes of a pattern that nothing follows.
func (p *program) lowerRE2(text string) (int32, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nodeFalse, fmt.Errorf("not a valid RE2 regular expression: %w", err)
	}
	p.word = asciiWord
	return p.re2(tree, nodeTrue), nil
}

var re2Assertions = map[syntax.Op]assertion{
	syntax.OpBeginLine:      atLineBegin,
	syntax.OpEndLine:        atLineEnd,
	syntax.OpBeginText:      atBegin,
	syntax.OpEndText:        atEnd,
	syntax.OpWordBoundary:   atWordBoundary,
	syntax.OpNoWordBoundary: notAtWordBoundary,
}

// re2 returns the node of n followed by rest.
func (p *program) re2(n *syntax.Regexp, rest int32) int32 {
	if !p.visit() {
		return nodeFalse
	}
	if a, ok := re2Assertions[n.Op]; ok {
		return p.assert(a, rest)
	}
	body := func(rest int32) int32 { return p.re2(n.Sub[0], rest) }
	switch n.Op {
	case syntax.OpEmptyMatch:
		return rest
	case syntax.OpNoMatch:
		return nodeFalse
	case syntax.OpLiteral:
		for i := len(n.Rune) - 1; i >= 0; i-- {
			rest = p.char(p.literal(n.Rune[i], n.Flags&syntax.FoldCase != 0), rest)
		}
		return rest
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return p.char(p.set("["+fmt.Sprint(n.Op, n.Rune), func() runeSet { return re2Set(n) }), rest)
	case syntax.OpCapture:
		return body(rest)
	case syntax.OpConcat:
		for i := len(n.Sub) - 1; i >= 0; i-- {
			rest = p.re2(n.Sub[i], rest)
		}
		return rest
	case syntax.OpAlternate:
		either := nodeFalse
		for i := len(n.Sub) - 1; i >= 0; i-- {
			either = p.or(p.re2(n.Sub[i], rest), either)
		}
		return either
	default:
		least, most := repetitions(n)
		return p.loop(least, most, rest, rest, body)
	}
}

func repetitions(n *syntax.Regexp) (least, most int) {
	switch n.Op {
	case syntax.OpStar:
		return 0, unbounded
	case syntax.OpPlus:
		return 1, unbounded
	case syntax.OpQuest:
		return 0, 1
	default:
		if n.Max < 0 {
			return n.Min, unbounded
		}
		return n.Min, n.Max
	}
}

// literal returns the set of one character, including its other cases if case is ignored.
func (p *program) literal(r rune, fold bool) int32 {
	if !fold || unicode.SimpleFold(r) == r {
		return p.one(r)
	}
	return p.set("~"+strconv.Itoa(int(r)), func() runeSet {
		set := runeSet{{r, r}}
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			set = append(set, span{next, next})
		}
		return set.sorted()
	})
}

func re2Set(n *syntax.Regexp) runeSet {
	switch n.Op {
	case syntax.OpAnyChar:
		return runeSet{}.complement()
	case syntax.OpAnyCharNotNL:
		return runeSet{{'\n', '\n'}}.complement()
	default:
		var set runeSet
		for i := 0; i+1 < len(n.Rune); i += 2 {
			set = append(set, span{n.Rune[i], n.Rune[i+1]})
		}
		return set.sorted()
	}
}
