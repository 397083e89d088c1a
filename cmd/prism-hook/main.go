// Prism-hook is the OCI hook of Prism's CDI specs: it fails a container that must not start as it is.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/prism-gpu/prism/pkg/hook"
)

const (
	name = "prism-hook"
	// retryBudget is longer than a plugin process takes to replace another.
	retryBudget = 10 * time.Second
	pause       = 100 * time.Millisecond
)

func main() {
	program := hook.Program{Stdin: os.Stdin, Parent: os.Getppid(), Proc: "/proc", RetryBudget: retryBudget, Pause: pause}
	if err := program.Run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
