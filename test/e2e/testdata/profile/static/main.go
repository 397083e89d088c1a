// Program static is one that no loader loads: it prints what it was given and exits with 5.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("arguments", os.Args, "variable", os.Getenv("QUOTED"))
	os.Exit(5)
}
