package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Second is a driver under another name beside the installed one: a process with its own directories and claims.
type Second struct {
	*Program

	// Gate holds its requests to the API server; nil without a gate.
	Gate *Gate
	// Kubelet replaces the node's kubelet for the plugin: it knows the claims that were created for it.
	Kubelet *Kubelet
	Claims  *Claims

	client kubernetes.Interface
	proxy  *httptest.Server
}

// newSecond prepares a driver's directories, claims and rights. It starts nothing. The caller closes the result even after an error.
func (b *bencher) newSecond(ctx context.Context, driver string, gated bool) (s *Second, err error) {
	s = &Second{client: b.client}
	dir, err := os.MkdirTemp(b.KubeletDir, "bench-")
	if err != nil {
		return s, fmt.Errorf("making a directory for %s: %w", driver, err)
	}
	// CDI specs are in memory, as for the installed driver.
	if s.Program, err = NewProgram(driver, dir, filepath.Join(filepath.Dir(b.CDIRoot), driver)); err != nil {
		return s, err
	}
	if s.Claims, err = NewClaims(ctx, b.client, driver, b.Node); err != nil {
		return s, err
	}
	if s.Kubelet, err = ServeKubelet(ctx, dir, s.Claims.Made); err != nil {
		return s, err
	}
	api := b.API
	if gated {
		if err := s.serve(b.API); err != nil {
			return s, fmt.Errorf("starting the proxy between %s and the API server: %w", driver, err)
		}
		api = &rest.Config{Host: s.proxy.URL}
	}
	return s, writeKubeconfig(s.kubeconfig(), api)
}

// Close stops the program and removes all files and claims.
func (s *Second) Close(ctx context.Context) error {
	if s.Program == nil {
		return nil
	}
	failed := []error{s.Kill(), removeSlices(ctx, s.client, s.Driver)}
	if s.Claims != nil {
		failed = append(failed, s.Claims.Remove(ctx))
	}
	if s.Kubelet != nil {
		failed = append(failed, s.Kubelet.Close())
	}
	if s.proxy != nil {
		s.proxy.CloseClientConnections()
		s.proxy.Close()
	}
	return errors.Join(append(failed, os.RemoveAll(s.Dir), os.RemoveAll(s.CDI))...)
}

// command returns the command line of a driver with these directories.
type command func(s *Second) []string

// prism returns the command line of the plugin with additional flags.
func (b *bencher) prism(flags ...string) command {
	return func(s *Second) []string { return prismCommand(s.Program, b.Binary, b.Node, s.Kubelet.Socket, flags...) }
}

// with starts a driver under another name, passes its start time to use, and stops it afterwards.
func (b *bencher) with(ctx context.Context, driver string, gated bool, program command, use func(s *Second, took time.Duration) error) (err error) {
	s, err := b.newSecond(ctx, driver, gated)
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	s.Command = program(s)
	took, err := s.Start(ctx)
	if err != nil {
		return err
	}
	return use(s, took)
}

// another calls with for one more plugin behind a Gate.
func (b *bencher) another(ctx context.Context, driver string, use func(s *Second, took time.Duration) error, flags ...string) error {
	return b.with(ctx, driver, true, b.prism(flags...), use)
}

// writeKubeconfig gives a program the rights of a client.
func writeKubeconfig(path string, api *rest.Config) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{
		Server: api.Host, CertificateAuthorityData: api.CAData, CertificateAuthority: api.CAFile, TLSServerName: api.ServerName,
	}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: api.CertData, ClientKeyData: api.KeyData, ClientCertificate: api.CertFile, ClientKey: api.KeyFile, Token: api.BearerToken,
	}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}

// serve passes requests on to the API server through the gate.
func (s *Second) serve(api *rest.Config) error {
	transport, err := rest.TransportFor(api)
	if err != nil {
		return err
	}
	target, err := url.Parse(api.Host)
	if err != nil {
		return err
	}
	s.Gate = NewGate(transport)
	s.proxy = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     s.Gate,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	})
	return nil
}

// held is how long to wait for requests that should not come.
const held = 200 * time.Millisecond

// CountRequests prepares and unprepares the claims, atOnce at a time, with the gate shut: one GET of each claim passes, and everything else
// waits until the plugin has answered. It returns the cost of the most expensive batch.
func (s *Second) CountRequests(ctx context.Context, claims []Claim, atOnce int) (costs Costs, err error) {
	defer s.Gate.Open()
	for batch := range slices.Chunk(claims, atOnce) {
		var admitted []string
		for _, claim := range batch {
			admitted = append(admitted, getClaim(claim))
		}
		s.Gate.Take()
		s.Gate.Shut(admitted...)
		if err := callEach(ctx, s.Plugin.Prepare, batch); err != nil {
			return costs, s.Gate.blame(err)
		}
		s.Gate.Open()
		if err := s.Claims.Reported(ctx, batch...); err != nil {
			return costs, err
		}
		prepare := neededFirst(s.Gate.Take())
		s.Gate.Shut()
		if err := callEach(ctx, s.Plugin.Unprepare, batch); err != nil {
			return costs, s.Gate.blame(err)
		}
		pause(ctx, held)
		s.Gate.Open()
		costs = costs.most(Costs{Prepare: prepare, Unprepare: all(logUnexpected("unpreparing", s.Gate.Take()))})
	}
	return costs, nil
}

// answerLimit is far longer than the time of an answer that waits for nothing.
const answerLimit = 10 * time.Second

// callEach makes one call for each claim, all at once.
func callEach(ctx context.Context, call func(context.Context, ...Claim) error, claims []Claim) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_, err := together(claims, func(one Claim) error { return call(ctx, one) })
	return err
}

// pause lets time pass in which something wrong could happen.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// neededFirst counts requests that the answer needed apart from requests that came later or could wait.
func neededFirst(requests []Request) Cost {
	var needed []Request
	for _, r := range requests {
		if r.Needed {
			needed = append(needed, r)
		}
	}
	c := all(needed)
	c.Later = len(requests) - len(needed)
	return c
}

// logUnexpected writes the requests to standard error that came at a time without expected requests.
func logUnexpected(when string, requests []Request) []Request {
	for _, r := range requests {
		fmt.Fprintln(os.Stderr, "API request while "+when+":", r.Method, r.Path)
	}
	return requests
}

// all counts requests regardless of their time.
func all(requests []Request) (c Cost) {
	for _, r := range requests {
		if r.Writes() {
			c.Writes++
		} else {
			c.Reads++
		}
	}
	return c
}
