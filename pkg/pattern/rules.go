package pattern

import "strings"

// Target is the text that the tables of rules are matched against.
type Target uint8

const (
	// CommandLine is the arguments, including argv[0], joined with one space.
	CommandLine Target = iota
	// Executable is the path of the running program.
	Executable
	// Argv0 is the first argument.
	Argv0
	targets
)

// Rules select processes.
type Rules struct {
	Target Target
	// Include matches the processes that are selected; nil: all.
	Include *Table
	// Excludes match processes that are not selected, regardless of Include.
	Excludes []*Table
	// Names are base names of executables that are not selected either, such as "bash".
	Names []string
}

// Match reports whether a process is selected: argv are its arguments without NUL, exe is the path of the running program. The function
// prism_match of pkg/profiler/native/match returns the same.
func (r Rules) Match(argv []string, exe string) bool {
	base := exe[strings.LastIndexByte(exe, '/')+1:]
	for _, name := range r.Names {
		if name == base {
			return false
		}
	}
	text := r.text(argv, exe)
	if r.Include != nil && !r.Include.Match(text) {
		return false
	}
	for _, exclude := range r.Excludes {
		if exclude.Match(text) {
			return false
		}
	}
	return true
}

func (r Rules) text(argv []string, exe string) string {
	switch {
	case r.Target == Executable:
		return exe
	case r.Target == CommandLine:
		return strings.Join(argv, " ")
	case len(argv) > 0:
		return argv[0]
	}
	return ""
}
