// Package node serves the reports of a node to controllers, over HTTPS with certificates on both sides.
package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// Store provides the reports. Reports are found by their ids, which are not paths.
type Store interface {
	// List returns the reports of a namespace, or of all for "", in any order. With the namespace's UID, reports of other namespaces of
	// that name are omitted.
	List(namespace, namespaceUID string) []report.Report
	// Get returns one report; fs.ErrNotExist if there is none.
	Get(claimUID, id string) (report.Report, error)
	// Content opens the file of a report; fs.ErrNotExist if there is none.
	Content(claimUID, id string) (*os.File, report.Report, error)
	// Delete removes a report; fs.ErrNotExist if there is none, report.ErrPrecondition if it is a different one or has changed.
	Delete(claimUID, id string, d report.Deletion) error
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// contentTimeout is the timeout for a download of a report, or of a range of it.
	contentTimeout = time.Hour
	answerTimeout  = time.Minute
	maxHeader      = 16 << 10
	// stallTime is the timeout of a download without progress. If the controller disconnects, its download is canceled earlier.
	stallTime = time.Minute
)

// contentSeats limits concurrent downloads from all controllers: the other connections are reserved for lists, gets and deletions.
var contentSeats = seats.Bounds{All: 40, Namespace: 8, User: 4, Kept: 4}

// Options are the settings of a server.
type Options struct {
	// Address is the address to listen at, "host:port".
	Address string
	// Certificate is a directory with tls.crt, tls.key, and ca.crt, the authority of clients. It is read for every connection, because
	// Secrets change in place.
	Certificate string
	// Client is the DNS name in certificates of controllers.
	Client string
	Store  Store
	// Sessions are the processes that wait to be recorded.
	Sessions Sessions
	// Busy reports whether an error of Delete means that the report is not complete, or an error of Command that another process of the node
	// carries out commands.
	Busy func(error) bool
	// Listening is called with the address; nil is allowed.
	Listening func(net.Addr)
}

// Server serves the reports of a node.
type Server struct {
	options Options
	// downloads are the running downloads.
	downloads seats.Taken
}

// New returns a server. Invalid certificates are not an error: connections are refused until the certificates are valid.
func New(o Options) *Server {
	if o.Busy == nil {
		o.Busy = func(error) bool { return false }
	}
	return &Server{options: o}
}

// Run serves until the context ends. It returns an error if the port is in use.
func (s *Server) Run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("serving reports at %s: %w; choose another address", s.options.Address, err)
	}
	return s.serve(ctx, listener)
}

// serve runs with a listener, which it closes.
func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.certificates() }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if s.options.Listening != nil {
		s.options.Listening(listener.Addr())
	}
	err := server.Serve(newGate(listener, config))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving reports at %s: %w", s.options.Address, err)
	}
	return nil
}

// certificates reads the certificate of the server, and the authority of clients.
func (s *Server) certificates() (*tls.Config, error) {
	dir := s.options.Certificate
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the node API: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority of the node API: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("reading the certificate authority of the node API: no certificate in %s", filepath.Join(dir, "ca.crt"))
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: s.controller,
		// A resumed session would outlive a replaced authority.
		SessionTicketsDisabled: true,
	}, nil
}

// controller refuses certificates of the authority that were not issued for controllers. One authority may sign certificates of plugins
// too, for servers and clients alike: with the certificate of its plugin, a node could otherwise read the reports of other nodes.
func (s *Server) controller(of tls.ConnectionState) error {
	leaf := of.PeerCertificates[0]
	if err := leaf.VerifyHostname(s.options.Client); err != nil {
		return fmt.Errorf("verifying the certificate of a client: it was not issued for controllers: %w", err)
	}
	if leaf.VerifyHostname(config.ReportsServerName) == nil {
		return fmt.Errorf("verifying the certificate of a client: it was issued for %s, the name of plugins, which the certificate of a controller must not contain",
			config.ReportsServerName)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/reports", s.list)
	mux.HandleFunc("GET /v1/reports/{claim}/{id}", s.get)
	mux.HandleFunc("GET /v1/reports/{claim}/{id}/content", s.content)
	mux.HandleFunc("DELETE /v1/reports/{claim}/{id}", s.delete)
	mux.HandleFunc("GET /v1/sessions", s.sessions)
	mux.HandleFunc("POST /v1/commands", s.command)
	return mux
}

// list answers with the reports of a namespace, or with one of them, in the order of their keys: reports after a key, up to a limit.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := parsePage(r)
	answer(w, http.StatusOK, map[string]any{"reports": pageOf(q, s.options.Store.List(q.namespace, q.namespaceUID), reportID)})
}

func reportID(r report.Report) string { return r.ID }

// get answers with a report, or with an error if a dry run of its deletion fails. A dry run is not a DELETE request, because plugins of
// earlier versions would delete the report.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	if d := report.ParseDeletion(r.URL.Query()); d.DryRun {
		if err := s.options.Store.Delete(r.PathValue("claim"), r.PathValue("id"), d); err != nil {
			s.refuse(w, err)
			return
		}
	}
	found, err := s.options.Store.Get(r.PathValue("claim"), r.PathValue("id"))
	if err != nil {
		s.refuse(w, err)
		return
	}
	answer(w, http.StatusOK, found)
}

func (s *Server) content(w http.ResponseWriter, r *http.Request) {
	file, found, err := s.options.Store.Content(r.PathValue("claim"), r.PathValue("id"))
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer func() { _ = file.Close() }()
	by := seats.ParseParty(r.URL.Query(), found.Namespace)
	if !s.downloads.Enter(contentSeats, by) {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": fmt.Sprintf(
			"too many concurrent downloads from node %s: at most %d, %d per namespace and %d per user; try again later", found.Node, contentSeats.All,
			contentSeats.Namespace, contentSeats.User)})
		return
	}
	defer s.downloads.Leave(by)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", strconv.Quote(found.SHA256))
	http.ServeContent(steady{w, time.Now().Add(contentTimeout)}, r, "", time.Time{}, file)
}

// steady ends a download without progress, or that takes too long.
type steady struct {
	http.ResponseWriter
	until time.Time
}

// Write gives the controller stallTime for the data of one read of the file.
func (s steady) Write(b []byte) (int, error) {
	deadline := time.Now().Add(stallTime)
	if deadline.After(s.until) {
		deadline = s.until
	}
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(deadline)
	return s.ResponseWriter.Write(b)
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	if err := s.options.Store.Delete(r.PathValue("claim"), r.PathValue("id"), report.ParseDeletion(r.URL.Query())); err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuse answers with one sentence.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = http.StatusNotFound
	case s.options.Busy(err), errors.Is(err, report.ErrPrecondition):
		code = http.StatusConflict
	}
	answer(w, code, map[string]string{"error": err.Error()})
}

// answer writes JSON. It does not report a disconnected client.
func answer(w http.ResponseWriter, code int, body any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // only parsed as JSON, and limited in bytes
	_ = encoder.Encode(body)
}
