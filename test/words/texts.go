package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is a piece of a file, and its first line.
type Text struct {
	Line int
	Text string
}

// Code holds the texts of a Go file.
type Code struct {
	// Messages are the string literals of several words; literals of one word are names that programs compare.
	Messages []Text
	// Logs are the constant messages in calls of a logger.
	Logs []Text
	// Comments are groups of lines.
	Comments []Text
	// Names are those that the file declares, split into words in lower case.
	Names []Text

	declared map[string]bool
}

// InComments finds the words of a table in the comments. It skips a capitalised name that the file declares: the check of declarations
// finds its words.
func (c Code) InComments(table Table) []Finding {
	var found []Finding
	for _, comment := range c.Comments {
		for _, f := range table.Find(comment.Text) {
			if first, _ := utf8.DecodeRuneInString(f.Word); unicode.IsUpper(first) && c.declared[f.Word] {
				continue
			}
			f.Line += comment.Line - 1
			found = append(found, f)
		}
	}
	return found
}

// ParseCode finds the texts of a Go file.
func ParseCode(name string, source []byte) (Code, error) {
	code := Code{declared: map[string]bool{}}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return code, err
	}
	at := func(n ast.Node) int { return files.Position(n.Pos()).Line }
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if !strings.HasPrefix(comment.Text, "//go:") && !strings.HasPrefix(comment.Text, "//nolint") {
				code.Comments = append(code.Comments, Text{at(comment), comment.Text})
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if text, ok := literal(n); ok && strings.Contains(text, " ") {
				code.Messages = append(code.Messages, Text{at(n), text})
			}
		case *ast.CallExpr:
			if text, ok := logged(n); ok {
				code.Logs = append(code.Logs, Text{at(n), text})
			}
		}
		for _, ident := range declared(n) {
			code.Names = append(code.Names, Text{at(ident), SplitName(ident.Name)})
			code.declared[ident.Name] = true
		}
		return true
	})
	code.Comments = joined(code.Comments)
	return code, nil
}

// joined joins comments on consecutive lines, so that a phrase across lines is found.
func joined(comments []Text) []Text {
	var all []Text
	for _, c := range comments {
		if last := len(all) - 1; last >= 0 && all[last].Line+strings.Count(all[last].Text, "\n")+1 == c.Line {
			all[last].Text += "\n" + c.Text
			continue
		}
		all = append(all, c)
	}
	return all
}

func literal(n ast.Expr) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// logged returns the message in a call of Info or of Error of a logger: Info(message, …), Error(err, message, …).
func logged(call *ast.CallExpr) (string, bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	if receiver, ok := method.X.(*ast.Ident); ok && receiver.Name == "http" {
		return "", false
	}
	position := map[string]int{"Info": 0, "Error": 1}
	i, ok := position[method.Sel.Name]
	if !ok || len(call.Args) <= i {
		return "", false
	}
	return literal(call.Args[i])
}

func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return idents(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			return idents(n.Key, n.Value)
		}
	}
	return nil
}

func idents(expressions ...ast.Expr) []*ast.Ident {
	var all []*ast.Ident
	for _, e := range expressions {
		if ident, ok := e.(*ast.Ident); ok {
			all = append(all, ident)
		}
	}
	return all
}

// SplitName splits a name at changes of case and at underscores: "MIGOffer_ofGPU" is "mig offer of gpu".
func SplitName(name string) string {
	var words strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		starts := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		switch {
		case r == '_':
			words.WriteByte(' ')
			continue
		case starts:
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	return strings.Join(strings.Fields(words.String()), " ")
}

// FileName returns the name of a Go file as words.
func FileName(file string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(path.Base(file), ".go"), "_test")
	return strings.ReplaceAll(name, "_", " ")
}

// BadLog returns the error in the form of a log message; empty if there is none.
func BadLog(message string) string {
	first, _ := utf8.DecodeRuneInString(message)
	switch {
	case unicode.IsLower(first):
		return "a log message begins with a capital letter"
	case strings.HasSuffix(message, "."):
		return "a log message has no full stop"
	}
	return ""
}

// TableHeadings returns the first rows of the tables in a Markdown text.
func TableHeadings(text string) []Text {
	var headings []Text
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i++ {
		if strings.HasPrefix(lines[i], "|") && strings.HasPrefix(lines[i+1], "|--") {
			headings = append(headings, Text{i + 1, lines[i]})
		}
	}
	return headings
}
