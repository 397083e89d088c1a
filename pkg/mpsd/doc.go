// Package mpsd is the MPS service of a node: it owns the MPS control daemons of GPUs and MIG devices, and decides nothing. What it does, it
// does on request of the kubelet plugin (package client).
//
// Its first process, Init, starts the second, Service, again whenever that exits. A control daemon outlives the service that started it:
// the next one finds it in its directory, by pid and start time. Every request may be repeated, also after the service was killed in it.
//
// A control daemon is the driver's own program. Its directory below Options.Dir outlives it, because running containers have parts of it:
//
//	pipe     sockets of the control daemon, for root
//	client   links to those sockets that clients may use; in containers
//	shm      a tmpfs, /dev/shm of daemon, servers and clients; in containers
//	lib      links to the driver's libraries
//	log      logs of daemon and servers
//	stdin    a FIFO that the daemon reads
//	state    what the next service needs
package mpsd
