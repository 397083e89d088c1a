// Package configsource reads the node's configuration, from which the layout is decided: from a file, or from a ConfigMap and a label of
// the Node. A starting process reads it before anything else, because it also contains settings of the process.
package configsource
