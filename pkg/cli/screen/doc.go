// Package screen lays out text for terminals: it cuts names in the middle, wraps sentences, aligns columns, and draws frames. Letters and words
// say everything; colors repeat it.
package screen
