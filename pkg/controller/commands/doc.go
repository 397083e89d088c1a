// Package commands validates SessionCommands, and merges the answers of nodes to them. It computes, and asks no node.
package commands
