// Package mpsd is the MPS service of a node: it owns the MPS control daemons of GPUs and MIG devices. It makes no decisions: it acts on
// requests of the kubelet plugin (package client).
//
// Its first process, Init, starts the second, Service, and restarts it whenever it exits. A control daemon outlives the service that
// started it: the next service finds it by the PID and start time in its directory. Every request may be repeated, also after the service
// was killed during the request.
//
// A control daemon is the driver's own program. Its directory below Options.Dir outlives it, because running containers mount parts of it:
//
//	pipe     sockets of the control daemon, for root
//	client   links to those sockets that clients may use; in containers
//	shm      a tmpfs, /dev/shm of daemon, servers and clients; in containers
//	lib      links to the driver's libraries
//	log      logs of daemon and servers
//	stdin    a FIFO that the daemon reads
//	state    the state for the next service
package mpsd
