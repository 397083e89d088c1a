package nodeconfig

import "fmt"

// Warning is something in a text that has no effect, or another one than its author may think.
type Warning struct {
	// Path leads to the key as the author wrote it: flags.plugin.passDeviceSpecs.
	Path string
	// Text says what becomes of it and what takes its place.
	Text string
}

// String is the path and the text in one sentence.
func (w Warning) String() string { return fmt.Sprintf("%s: %s", w.Path, w.Text) }
