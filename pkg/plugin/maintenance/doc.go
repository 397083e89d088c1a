// Package maintenance follows the Node of the plugin: annotations that take GPUs out of service, release or heal them, and conditions by
// which other components report sick GPUs. It passes both to the monitor of health, and has all processes of Prism on the node close their
// sessions of the driver for a release.
//
// Every process of a node runs a Controller. Only the leading process decides about releases and writes Events. It stores a release in a
// file, which every process, also the exporter, follows: the file is written before the first session is closed.
package maintenance
