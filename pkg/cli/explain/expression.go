package explain

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// reads are the attributes and capacities that an expression reads, with domain.
type reads struct {
	// all is set if the expression may read others too.
	all                    bool
	attributes, capacities map[resourceapi.QualifiedName]bool
	// sorted are the names of both, once they were asked for.
	sorted [2][]resourceapi.QualifiedName
}

func newReads() reads {
	return reads{attributes: map[resourceapi.QualifiedName]bool{}, capacities: map[resourceapi.QualifiedName]bool{}}
}

func (r *reads) add(more reads) {
	r.all = r.all || more.all
	maps.Copy(r.attributes, more.attributes)
	maps.Copy(r.capacities, more.capacities)
}

// part is an operand of the && at the top of an expression, and an expression itself.
type part struct {
	text  string
	reads reads
}

// expression is a CEL expression of a DeviceClass or a claim.
type expression struct {
	part
	parts []part
	// of is "DeviceClass x" or "claim y".
	of string
}

// parse splits an expression. One that does not compile has one part.
func (m *matcher) parse(text, of string) *expression {
	whole := part{text: text, reads: reads{all: true}}
	e := &expression{part: whole, parts: []part{whole}, of: of}
	compiled := m.cel.GetOrCompile(text)
	if compiled.Error != nil {
		return e
	}
	parsed, issues := compiled.Environment.Parse(text)
	if issues.Err() != nil {
		return e
	}
	tree := parsed.NativeRep()
	e.reads = newReads()
	var parts []part
	for _, operand := range operands(tree.Expr()) {
		p := part{reads: newReads()}
		p.reads.visit(operand)
		e.reads.add(p.reads)
		var err error
		if p.text, err = parser.Unparse(operand, tree.SourceInfo()); err != nil {
			return e
		}
		parts = append(parts, p)
	}
	if len(parts) > 1 {
		e.parts = parts
		return e
	}
	e.parts = []part{e.part}
	return e
}

// operands are the operands of the && at the top, in their order.
func operands(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	var all []ast.Expr
	for _, arg := range e.AsCall().Args() {
		all = append(all, operands(arg)...)
	}
	return all
}

// visit adds everything that an expression reads. Forms that it does not know set all.
func (r *reads) visit(e ast.Expr) {
	if r.known(e) {
		return
	}
	switch e.Kind() {
	case ast.IdentKind:
		r.all = r.all || e.AsIdent() == "device"
	case ast.SelectKind:
		r.visit(e.AsSelect().Operand())
	case ast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			r.visit(call.Target())
		}
		for _, arg := range e.AsCall().Args() {
			r.visit(arg)
		}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			r.visit(element)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		for _, inner := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
			r.visit(inner)
		}
	case ast.LiteralKind:
	default:
		r.all = true
	}
}

// known adds an expression that reads one attribute, one capacity or one field of the device, and reports whether it is one.
func (r *reads) known(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		if field, ok := deviceField(e); ok && (field == "driver" || field == "allowMultipleAllocations") {
			return true
		}
		return r.member(e.AsSelect().Operand(), e.AsSelect().FieldName())
	case ast.CallKind:
		args := e.AsCall().Args()
		if len(args) != 2 {
			return false
		}
		switch e.AsCall().FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			name, ok := literal(args[1])
			return ok && r.member(args[0], name)
		case operators.In:
			name, ok := literal(args[0])
			return ok && r.member(args[1], name)
		}
		return false
	default:
		return false
	}
}

// member adds the member of device.attributes["domain"] or device.capacity["domain"].
func (r *reads) member(of ast.Expr, name string) bool {
	if of.Kind() != ast.CallKind {
		return false
	}
	call := of.AsCall()
	if f := call.FunctionName(); f != operators.Index && f != operators.OptIndex || len(call.Args()) != 2 {
		return false
	}
	domain, ok := literal(call.Args()[1])
	if !ok {
		return false
	}
	switch field, _ := deviceField(call.Args()[0]); field {
	case "attributes":
		r.attributes[resourceapi.QualifiedName(domain+"/"+name)] = true
	case "capacity":
		r.capacities[resourceapi.QualifiedName(domain+"/"+name)] = true
	default:
		return false
	}
	return true
}

// deviceField returns the field of an expression "device.field".
func deviceField(e ast.Expr) (string, bool) {
	if e.Kind() != ast.SelectKind {
		return "", false
	}
	operand := e.AsSelect().Operand()
	if operand.Kind() != ast.IdentKind || operand.AsIdent() != "device" {
		return "", false
	}
	return e.AsSelect().FieldName(), true
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// identities returns the attributes among the reads that only identify a GPU.
func (r *reads) identities(constraints []resourceapi.DeviceConstraint) clusterview.Reads {
	ids := clusterview.Reads{All: r.all, Values: map[resourceapi.QualifiedName]bool{}, Equal: map[resourceapi.QualifiedName]bool{}}
	for name := range r.attributes {
		if clusterview.Identity(name) {
			ids.Values[name] = true
		}
	}
	for i := range constraints {
		for _, name := range []*resourceapi.FullyQualifiedName{constraints[i].MatchAttribute, constraints[i].DistinctAttribute} {
			if name != nil && clusterview.Identity(resourceapi.QualifiedName(*name)) {
				ids.Equal[resourceapi.QualifiedName(*name)] = true
			}
		}
	}
	return ids
}

// expressionWidth is the number of characters of an expression that are shown.
const expressionWidth = 200

// short removes the driver's domain from the names in an expression, and the middle of a long one.
func (p *part) short(driver string) string {
	text := p.text
	for _, quote := range []string{`"`, `'`} {
		for _, field := range []string{"attributes", "capacity"} {
			text = strings.ReplaceAll(text, "device."+field+"["+quote+driver+quote+"].", "")
		}
	}
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= expressionWidth {
		return string(runes)
	}
	return string(runes[:expressionWidth/2]) + " … " + string(runes[len(runes)-expressionWidth/2:])
}

// sortedAttributes lists the attributes; nothing may be added afterwards.
func (r *reads) sortedAttributes() []resourceapi.QualifiedName { return r.sort(0, r.attributes) }

// sortedCapacities lists the capacities; nothing may be added afterwards.
func (r *reads) sortedCapacities() []resourceapi.QualifiedName { return r.sort(1, r.capacities) }

func (r *reads) sort(i int, names map[resourceapi.QualifiedName]bool) []resourceapi.QualifiedName {
	if len(r.sorted[i]) < len(names) {
		r.sorted[i] = slices.Sorted(maps.Keys(names))
	}
	return r.sorted[i]
}
