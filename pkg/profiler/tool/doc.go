// Package tool puts a version of Nsight Systems from an administrator's image onto the node, proves that it records and imports there, and
// imports what processes of the node recorded. It runs in that image, whose programs are not trusted further than that.
package tool
