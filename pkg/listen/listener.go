package listen

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Listener prevents that one client takes all connections. Any pod can connect, and a kubelet whose probes are not answered kills the
// process, so no connection waits for another to end. A client above its limit is refused; at the total limit, the oldest connection of the
// client with the most connections is closed for the new one.
type Listener struct {
	net.Listener
	limits Limits

	mu sync.Mutex
	// open are connections that are neither closed nor released, the oldest first.
	open []*Conn
}

// Conn is a connection of a client, returned by Listener.Accept.
type Conn struct {
	net.Conn
	client netip.Addr
	of     *Listener
}

// Bound limits the open connections of a listener.
func Bound(listener net.Listener, limits Limits) *Listener {
	return &Listener{Listener: listener, limits: limits}
}

// TCP listens at "<address>:<port>" with limits. The error does not name the address.
func TCP(ctx context.Context, address string, limits Limits) (*Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return Bound(listener, limits), nil
}

// Accept returns the next connection, a *Conn, of a client below its limit.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &Conn{Conn: accepted, client: addressOf(accepted.RemoteAddr().String()), of: l}
		leaves := l.add(added)
		if leaves != nil {
			_ = leaves.Close()
		}
		if leaves != added {
			return added, nil
		}
	}
}

// add adds a connection and returns the connection to close for it, nil for none: the new one itself if its client is at its limit.
func (l *Listener) add(added *Conn) (leaves *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[netip.Addr]int{}
	for _, each := range l.open {
		of[each.client]++
	}
	if of[added.client] >= l.limits.PerClient {
		return added
	}
	if len(l.open) >= l.limits.Total {
		leaves = slices.MaxFunc(l.open, func(a, b *Conn) int { return of[a.client] - of[b.client] }) // the first of equal ones
		l.drop(leaves)
	}
	l.open = append(l.open, added)
	return leaves
}

// drop removes a connection. The caller holds the lock.
func (l *Listener) drop(gone *Conn) {
	l.open = slices.DeleteFunc(l.open, func(each *Conn) bool { return each == gone })
}

// Release stops counting the connection but leaves it open: its client is known, and limited elsewhere.
func (c *Conn) Release() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.drop(c)
}

// Close closes the connection and makes room for another one.
func (c *Conn) Close() error {
	c.Release()
	return c.Conn.Close()
}

// addressOf parses "<address>:<port>"; clients without an address count as one client.
func addressOf(remote string) netip.Addr {
	at, _ := netip.ParseAddrPort(remote)
	return at.Addr().Unmap()
}
