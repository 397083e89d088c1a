package nodeconfig

import "fmt"

// Warning is about a part of a text that has no effect, or an effect that its author may not expect.
type Warning struct {
	// Path leads to the key as the author wrote it: flags.plugin.passDeviceSpecs.
	Path string
	// Text describes the effect and the replacement.
	Text string
}

// String is the path and the text in one sentence.
func (w Warning) String() string { return fmt.Sprintf("%s: %s", w.Path, w.Text) }
