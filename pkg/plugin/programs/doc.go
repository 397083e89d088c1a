// Package programs installs the programs of a node that container runtimes start for claims, and the programs and libraries that containers
// load: prism-hook, NVIDIA's hook program, and the programs of extensions. It chooses the program of each hook of a CDI spec, removes programs of
// other versions once no process and no spec uses them, and detects whether the container runtime applies CDI specs.
package programs
