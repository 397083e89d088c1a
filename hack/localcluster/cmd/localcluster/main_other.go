//go:build !linux

// The localcluster command requires Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "localcluster: this needs Linux (namespaces, overlay mounts): run it on a Linux machine or in a virtual one")
	os.Exit(1)
}
