package tool

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// placed are the programs that the administrator's image gets of ours.
var placed = []string{"prism-tool", runProgram, proofProgram}

// Place copies this program, and those that a proof runs, out of the image in which they are beside it.
func Place(from, to string) error {
	for _, name := range placed {
		if err := place(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("placing %s in %s: %w", name, to, err)
		}
	}
	return nil
}

// place goes by rename: a container that was restarted may execute the file.
func place(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	tmp := to + ".new"
	target, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return err
	}
	if err := target.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}
