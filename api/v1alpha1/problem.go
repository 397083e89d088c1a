package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one validation error of an object.
type Problem struct {
	// Path is the path of the field as the user wrote it: sharing.mps.memoryLimit, gpus[1].modes[0]. It is empty for errors of the whole
	// object.
	Path string
	// Text is the error and the valid values, without the path.
	Text string
}

// Error returns the path and the text in one sentence.
func (p *Problem) Error() string {
	if p.Path == "" {
		return p.Text
	}
	return p.Path + ": " + p.Text
}

// Problems are all validation errors of one object, in the order of its fields.
type Problems struct {
	// Kind is the kind of the object, empty while it is not known.
	Kind string
	// List is never empty.
	List []*Problem
}

// Error returns one line: the kind, then the problems joined by semicolons.
func (p *Problems) Error() string {
	texts := make([]string, len(p.List))
	for i, problem := range p.List {
		texts[i] = problem.Error()
	}
	line := strings.Join(texts, "; ")
	if p.Kind == "" {
		return line
	}
	return p.Kind + ": " + line
}

// Unwrap lets errors.As find every single *Problem.
func (p *Problems) Unwrap() []error {
	errs := make([]error, len(p.List))
	for i, problem := range p.List {
		errs[i] = problem
	}
	return errs
}

// problems collects errors while an object is validated.
type problems struct{ list []*Problem }

func (p *problems) add(path, format string, args ...any) {
	p.list = append(p.list, &Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

// err returns nil if nothing was found, never a typed nil pointer.
func (p *problems) err(kind string) error {
	if len(p.list) == 0 {
		return nil
	}
	return &Problems{Kind: kind, List: p.list}
}

// oneOf refuses a set value that is not allowed.
func oneOf[T ~string](p *problems, path string, value *T, allowed []T) {
	if value != nil && !slices.Contains(allowed, *value) {
		p.add(path, "unsupported value %s; supported values: %s", quote(string(*value)), list(allowed))
	}
}

// eachOf refuses unsupported and duplicate values.
func eachOf[T ~string](p *problems, path string, values, allowed []T) {
	for i, value := range values {
		oneOf(p, index(path, i), &value, allowed)
	}
	unique(p, path, values)
}

// unique refuses duplicate values.
func unique[T comparable](p *problems, path string, values []T) {
	for i, value := range values {
		if slices.Contains(values[:i], value) {
			p.add(index(path, i), "duplicate value %#v", value)
		}
	}
}

// atMost refuses lists that are too long.
func atMost[T any](p *problems, path string, values []T, limit int) {
	if len(values) > limit {
		p.add(path, "must have at most %d items, got %d", limit, len(values))
	}
}

// between refuses a set number outside lowest..highest.
func between(p *problems, path string, value *int32, lowest, highest int32) {
	if value != nil && (*value < lowest || *value > highest) {
		p.add(path, "must be between %d and %d, got %d", lowest, highest, *value)
	}
}

// list joins values for a sentence.
func list[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value)
	}
	return strings.Join(texts, ", ")
}

// quote shortens a user's value to one line.
func quote(value string) string {
	const longest = 80
	if len(value) > longest {
		return fmt.Sprintf("%q (%d bytes)", strings.ToValidUTF8(value[:longest], "")+"…", len(value))
	}
	return fmt.Sprintf("%q", value)
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
