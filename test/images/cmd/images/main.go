// images prints the archives of the images that its arguments name, and creates missing ones; with --nsys it prints the path of nsys.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/prism-gpu/prism/test/images"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(names []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for _, name := range names {
		path := images.Nsys
		if name != "--nsys" {
			path = func(ctx context.Context) (string, error) { return images.Archive(ctx, ".", name) }
		}
		archive, err := path(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "images:", err)
			return 1
		}
		fmt.Println(archive)
	}
	return 0
}
