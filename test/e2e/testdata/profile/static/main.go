// Program static is a program that needs no loader: it prints its arguments and exits with 5.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("arguments", os.Args, "variable", os.Getenv("QUOTED"))
	os.Exit(5)
}
