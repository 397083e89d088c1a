// Command depguard writes the linter's rules for test/walls into its configuration file.
package main

import (
	"fmt"
	"os"

	"github.com/prism-gpu/prism/test/walls"
)

func main() {
	if err := renew(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "depguard:", err)
		os.Exit(1)
	}
}

func renew(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: depguard CONFIGURATION_FILE, not %d arguments", len(args))
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	renewed, err := walls.Depguard(string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], []byte(renewed), 0o644)
}
