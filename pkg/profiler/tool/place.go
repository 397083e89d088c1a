package tool

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// placed are our programs that are copied into the administrator's image.
var placed = []string{"prism-tool", runProgram, proofProgram}

// Place copies this program, and the programs for Prove, from the image in which they are next to this program.
func Place(from, to string) error {
	for _, name := range placed {
		if err := place(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("placing %s in %s: %w", name, to, err)
		}
	}
	return nil
}

// place replaces the file by rename, because a restarted container may be executing it.
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
