// Package configsource reads the node's configuration, from a file or from a ConfigMap and a label of the Node, for what a layout is decided
// by. It is read first of all when a process starts, because it also has settings of the process.
package configsource
