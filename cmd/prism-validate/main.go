// Prism-validate runs in a container with a claim, and checks whether its GPUs can be used. It prints a line for each check.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/validation"
	"github.com/prism-gpu/prism/pkg/validation/cuda"
)

func main() {
	uuids := flag.String("uuids", "", "Comma-separated UUIDs of the GPUs of the claim. The default is the device metadata in the container.")
	message := flag.String("result", "", "File that the result is written to, such as /dev/termination-log.")
	timeout := flag.Duration("timeout", time.Minute, "Deadline of each check.")
	flag.Parse()
	options := validation.Options{
		CUDA: &cuda.Driver{}, Root: "/", Timeout: *timeout, Report: func(c validation.Check) { _, _ = fmt.Fprintln(os.Stdout, c) },
	}
	if *uuids != "" {
		options.UUIDs = strings.Split(*uuids, ",")
	}
	result := validation.Run(options)
	if *message != "" {
		if err := write(*message, result); err != nil {
			fmt.Fprintf(os.Stderr, "prism-validate: writing the result: %v\n", err)
		}
	}
	if result.Failed() != nil {
		os.Exit(1)
	}
}

func write(file string, result *validation.Result) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
