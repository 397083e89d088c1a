package exporter

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// maxConnections bounds the memory that clients can take; Prometheus and the kubelet need a few.
	maxConnections = 64
	// maxOfClient bounds the connections of one address. Prometheus has one for each page.
	maxOfClient = 8
)

// connections is a listener of which no client can take all connections. Any pod can connect, and a kubelet whose probes are not
// answered kills the exporter: so none waits for another to end. A client that has its share is refused, and where all have as many as
// there can be, the oldest connection of the client that has most is closed for the new one.
type connections struct {
	net.Listener

	mu sync.Mutex
	// open are those that are not closed, the oldest first.
	open []*connection
}

// connection is one of a client.
type connection struct {
	net.Conn
	client netip.Addr
	of     *connections
}

// Accept returns the next connection of a client that may have one more.
func (c *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &connection{Conn: accepted, client: addressOf(accepted), of: c}
		leaves := c.add(added)
		if leaves != nil {
			_ = leaves.Close()
		}
		if leaves != added {
			return added, nil
		}
	}
}

// add adds a connection and returns the one that is to be closed for it, nil for none. That is itself where its client has its share.
func (c *connections) add(added *connection) (leaves *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := map[netip.Addr]int{}
	for _, each := range c.open {
		of[each.client]++
	}
	if of[added.client] >= maxOfClient {
		return added
	}
	if len(c.open) >= maxConnections {
		leaves = slices.MaxFunc(c.open, func(a, b *connection) int { return of[a.client] - of[b.client] }) // the first of equal ones
		c.drop(leaves)
	}
	c.open = append(c.open, added)
	return leaves
}

// drop forgets a connection. The lock is held.
func (c *connections) drop(gone *connection) {
	c.open = slices.DeleteFunc(c.open, func(each *connection) bool { return each == gone })
}

// Close closes the connection, for which another one can come.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.drop(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// addressOf is the address of a client without its port; all that have none are one client.
func addressOf(client net.Conn) netip.Addr {
	at, _ := netip.ParseAddrPort(client.RemoteAddr().String())
	return at.Addr().Unmap()
}
