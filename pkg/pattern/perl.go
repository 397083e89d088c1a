package pattern

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dlclark/regexp2/v2/syntax"
)

// refused are the constructs of the dialect Perl that no table can express, with their replacements.
var refused = map[syntax.NodeType]refusal{
	syntax.NtRef:         "a back-reference is not supported; write out the alternatives",
	syntax.NtBackRefCond: "a conditional on a group, (?(1)…|…), is not supported; write out both alternatives, as in (?:…|…)",
	syntax.NtGrapheme:    `\X is not supported; write a character class such as \w, or . for one character`,
}

const (
	lookbehind = refusal("a lookbehind, (?<=…) or (?<!…), is not supported; write the preceding text as a part of the pattern, or use a lookahead from " +
		"the beginning, as in ^(?!.*…)")
	rightToLeft = refusal("(?r) is not supported; write the pattern from left to right")
	ecmaScript  = refusal("(?e) is not supported; write the pattern without it, and [0-9A-Za-z_] for \\w")
	balancing   = refusal("a balancing group, (?<a-b>…), is not supported; write out the nesting to the required depth")
	atomicGroup = refusal("an atomic group, (?>…) or a possessive repetition of a group, is supported only at the end of a pattern or of a lookahead, " +
		"and of one character, as in [a-z]++; write (?:…) instead")
)

// lowerPerl adds the nodes of a pattern that nothing follows.
func (p *program) lowerPerl(text string) (int32, error) {
	tree, err := syntax.Parse(text, syntax.ParseOptions{})
	if err != nil {
		return nodeFalse, notPerl(err)
	}
	p.word = perlWord()
	return p.perl(tree.Root, nodeTrue), nil
}

// notPerl returns the library's error of a pattern, without the pattern. The library supports options that it does not accept in a pattern.
func notPerl(err error) error {
	var known *syntax.Error
	if !errors.As(err, &known) {
		return fmt.Errorf("not a valid Perl regular expression: %w", err)
	}
	reason := known.Code.String()
	if len(known.Args) > 0 {
		reason = fmt.Sprintf(reason, known.Args...)
	}
	switch {
	case strings.HasSuffix(reason, ": (?r"):
		return rightToLeft
	case strings.HasSuffix(reason, ": (?e"):
		return ecmaScript
	}
	return fmt.Errorf("not a valid Perl regular expression: %s", reason)
}

// perl returns the node of n followed by rest.
func (p *program) perl(n *syntax.RegexNode, rest int32) int32 {
	if !p.visit() {
		return nodeFalse
	}
	if reason := unsupported(n, rest); reason != nil {
		return p.refuse(reason)
	}
	switch n.T {
	case syntax.NtEmpty, syntax.NtUpdateBumpalong:
		return rest
	case syntax.NtNothing:
		return nodeFalse
	case syntax.NtConcatenate:
		for i := len(n.Children) - 1; i >= 0; i-- {
			rest = p.perl(n.Children[i], rest)
		}
		return rest
	case syntax.NtAlternate:
		either := nodeFalse
		for i := len(n.Children) - 1; i >= 0; i-- {
			either = p.or(p.perl(n.Children[i], rest), either)
		}
		return either
	case syntax.NtCapture, syntax.NtGroup, syntax.NtAtomic:
		return p.perl(n.Children[0], rest)
	case syntax.NtLoop, syntax.NtLazyloop:
		return p.loop(n.M, n.N, rest, rest, func(rest int32) int32 { return p.perl(n.Children[0], rest) })
	case syntax.NtPosLook:
		return p.and(p.perl(n.Children[0], nodeTrue), rest)
	case syntax.NtNegLook:
		return p.and(p.not(p.perl(n.Children[0], nodeTrue)), rest)
	case syntax.NtExprCond:
		condition := p.perl(n.Children[0], nodeTrue)
		yes, no := p.perl(n.Children[1], rest), p.perl(n.Children[2], rest)
		return p.or(p.and(condition, yes), p.and(p.not(condition), no))
	default:
		return p.perlLeaf(n, rest)
	}
}

// unsupported returns why a node cannot be lowered, or nil.
func unsupported(n *syntax.RegexNode, rest int32) error {
	if reason, ok := refused[n.T]; ok {
		return reason
	}
	look := n.T == syntax.NtPosLook || n.T == syntax.NtNegLook
	switch {
	case look && n.Options&syntax.RightToLeft != 0, look && n.Children[0].Options&syntax.RightToLeft != 0:
		return lookbehind
	case n.T == syntax.NtCapture && n.N != -1:
		return balancing
	case n.T == syntax.NtCapture, n.T == syntax.NtEmpty, n.T == syntax.NtNothing:
		return nil
	case n.Options&syntax.RightToLeft != 0:
		return rightToLeft
	case n.Options&syntax.ECMAScript != 0:
		return ecmaScript
	case n.T == syntax.NtAtomic && rest != nodeTrue:
		return atomicGroup
	}
	return nil
}

// perlAssertions are the nodes that read nothing. A search starts at the beginning of the text, and so does \G.
var perlAssertions = map[syntax.NodeType]assertion{
	syntax.NtBeginning:   atBegin,
	syntax.NtStart:       atBegin,
	syntax.NtBol:         atLineBegin,
	syntax.NtEol:         atLineEnd,
	syntax.NtEndZ:        atLastEnd,
	syntax.NtEnd:         atEnd,
	syntax.NtBoundary:    atWordBoundary,
	syntax.NtNonboundary: notAtWordBoundary,
}

// perlLeaf returns the node of characters, of a loop over one, or of an assertion.
func (p *program) perlLeaf(n *syntax.RegexNode, rest int32) int32 {
	if a, ok := perlAssertions[n.T]; ok {
		return p.assert(a, rest)
	}
	if n.T == syntax.NtMulti {
		for i := len(n.Str) - 1; i >= 0; i-- {
			rest = p.char(p.one(n.Str[i]), rest)
		}
		return rest
	}
	var set int32
	switch {
	case n.IsOneFamily():
		set = p.one(n.Ch)
	case n.IsNotoneFamily():
		set = p.set("!"+strconv.Itoa(int(n.Ch)), func() runeSet { return runeSet{{n.Ch, n.Ch}}.complement() })
	case n.IsSetFamily():
		set = p.set("["+string(n.Set.Hash()), func() runeSet { return charSet(n.Set) })
	default:
		return p.refuse(refusal(fmt.Sprintf("the construct with node type %d is not supported", n.T)))
	}
	if n.T == syntax.NtOne || n.T == syntax.NtNotone || n.T == syntax.NtSet {
		return p.char(set, rest)
	}
	return p.charLoop(set, n.M, n.N, n.IsAtomicloopFamily(), rest)
}
