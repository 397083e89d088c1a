// Package explaining measures what kubectl prism explain costs in a large cluster: requests, memory and CPU. `make bench-scale` measures a
// thousand nodes; tests assert the counts on few.
package explaining
