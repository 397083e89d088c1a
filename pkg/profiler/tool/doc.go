// Package tool installs a version of Nsight Systems from an administrator's image on the node, tests that it records and imports there, and
// imports recordings of processes of the node. It runs in that image, whose programs are only trusted to this extent.
package tool
