package e2e

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMain lists the files of claims on the node before the first and after the last test.
func TestMain(m *testing.M) {
	if os.Getenv("PRISM_CLUSTER") == "" {
		os.Exit(m.Run())
	}
	// Tests that wait for GPUs count as running, so there must be more for tests that have a GPU.
	flag.Parse()
	if err := flag.Set("test.parallel", "64"); err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	before, err := kept()
	code := m.Run()
	after, err2 := kept()
	stopPrometheus()
	left := slices.DeleteFunc(after, func(file string) bool { return slices.Contains(before, file) })
	switch {
	case err != nil, err2 != nil:
		fmt.Println("FAIL: listing the files of claims on the node:", err, err2)
		code = 1
	case len(left) > 0:
		fmt.Println("FAIL: after all tests the node still has", strings.Join(left, ", "))
		code = 1
	}
	os.Exit(code)
}

func kept() ([]string, error) {
	c, err := connected()
	if err != nil {
		return nil, err
	}
	return c.kept()
}
