package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// Source provides pictures of a cluster.
type Source struct {
	// Watch calls draw with each picture, and with sentences about rights that the user lacks, until the context ends.
	Watch func(ctx context.Context, draw func(c *clusterview.Cluster, missing []string) error) error
	// Explain explains a pod of a picture. It is called by one goroutine at a time.
	Explain func(ctx context.Context, c *clusterview.Cluster, pod *clusterview.Pod) (*explain.Explanation, error)
	// Loads returns how busy the GPUs of a picture are; nil if that is unknown.
	Loads func(ctx context.Context, c *clusterview.Cluster) (map[string]Load, error)
}

// loadInterval is the time between two readings of loads: exporters sample GPUs as often by default.
const loadInterval = 10 * time.Second

// headerBytes limits the headers of a request, requestTime the time to read them, idleTime an unused connection.
const (
	headerBytes = 16 << 10
	requestTime = 5 * time.Second
	idleTime    = time.Minute
)

// Serve answers browsers at a listener of the loopback interface until the context ends or the source fails. It calls ready with the URL of
// the page, which contains its token.
func Serve(ctx context.Context, listener net.Listener, about About, from Source, ready func(url string)) error {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return fmt.Errorf("the page must be at the loopback interface, not at %s", listener.Addr())
	}
	p := &pictures{about: about, from: from, hub: newHub()}
	s, err := newServer(address.Port, p.hub, p)
	if err != nil {
		return err
	}
	s.prefer(address.IP)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: requestTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		// Streams end with the context.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 2)
	go func() { ended <- web.Serve(listener) }()
	go func() { ended <- from.Watch(ctx, p.draw) }()
	loading := make(chan struct{})
	go func() { defer close(loading); p.load(ctx) }()
	ready(s.url())
	left := 2
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	cancel()
	err = errors.Join(failure(err), web.Close())
	for range left {
		err = errors.Join(err, failure(<-ended))
	}
	<-loading
	return err
}

// failure returns the error, or nil for the end of a context or of a server.
func failure(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// pictures holds the newest picture.
type pictures struct {
	about About
	from  Source
	hub   *hub

	mu      sync.Mutex
	newest  *clusterview.Cluster
	missing []string
	time    time.Time
	loads   *Loads
}

// draw replaces the picture.
func (p *pictures) draw(c *clusterview.Cluster, missing []string) error {
	now := time.Now()
	p.mu.Lock()
	p.newest, p.missing, p.time = c, missing, now
	p.mu.Unlock()
	about := p.about
	about.Time, about.Missing = now, missing
	return p.hub.publish(stateOf(c, about))
}

func (p *pictures) current() (*clusterview.Cluster, About) {
	p.mu.Lock()
	defer p.mu.Unlock()
	about := p.about
	about.Time, about.Missing = p.time, p.missing
	return p.newest, about
}

// load reads loads until the context ends, first as soon as there is a picture.
func (p *pictures) load(ctx context.Context) {
	if p.from.Loads == nil {
		return
	}
	if _, version, changed, _ := p.hub.since(0); version == 0 {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTicker(loadInterval)
	defer timer.Stop()
	for {
		c, _ := p.current()
		l := &Loads{}
		var err error
		if l.GPUs, err = p.from.Loads(ctx, c); err != nil {
			l.Problem = err.Error()
		}
		p.mu.Lock()
		p.loads = l
		p.mu.Unlock()
		// Loads that cannot be encoded are not shown.
		_ = p.hub.publishLoads(l)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// explain explains a pod of the newest picture.
func (p *pictures) explain(ctx context.Context, namespace, name string) (*explain.Explanation, error) {
	c, _ := p.current()
	if c == nil {
		return nil, errNotFound
	}
	pod := c.FindPod(namespace, name)
	if pod == nil {
		return nil, errNotFound
	}
	return p.from.Explain(ctx, c, pod)
}

// save writes the newest picture as one file, without explanations.
func (p *pictures) save(w io.Writer) error {
	c, about := p.current()
	if c == nil {
		return errors.New("the cluster is not read yet")
	}
	p.mu.Lock()
	loads := p.loads
	p.mu.Unlock()
	return Page(w, c, about, Extra{Loads: loads})
}
