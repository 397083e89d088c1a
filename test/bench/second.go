package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// SecondOptions describe a plugin beside the installed one.
type SecondOptions struct {
	// Driver is its name, Binary its program, Dir where its state is, Node the node's name.
	Driver, Binary, Dir, Node string
	// Config is the document that says what it offers the GPUs as; empty: whole.
	Config string
	// ConfigMap is the <namespace>/<name> of one that has such documents, and says it instead.
	ConfigMap string
	// Claims are those that its kubelet knows.
	Claims func() []Claim
}

// Second is a plugin under a name of its own, whose requests to the API server pass a Gate. It has the node's GPUs, and
// directories of its own.
type Second struct {
	SecondOptions

	Gate *Gate
	// Plugin is the one that runs, nil when none does.
	Plugin *Plugin
	// Kubelet is what the plugin takes for the node's: it knows the claims that were made for it.
	Kubelet *Kubelet

	proxy   *http.Server
	command *exec.Cmd
	input   io.WriteCloser
	log     *os.File
}

// NewSecond prepares a plugin; nothing runs yet.
func NewSecond(ctx context.Context, api *rest.Config, o SecondOptions) (s *Second, err error) {
	s = &Second{SecondOptions: o}
	for _, sub := range []string{"plugins", "registry", "cdi"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, sub), 0o750); err != nil {
			return nil, fmt.Errorf("making the directories of a second plugin: %w", err)
		}
	}
	if err := os.WriteFile(s.config(), []byte(o.Config), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration of a second plugin: %w", err)
	}
	if s.Kubelet, err = ServeKubelet(ctx, o.Dir, o.Claims); err != nil {
		return nil, err
	}
	server, err := s.serve(ctx, api)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("standing between a second plugin and the API server: %w", err), s.Kubelet.Close())
	}
	config := strings.NewReplacer("SERVER", server).Replace(
		`{apiVersion: v1, kind: Config, clusters: [{name: bench, cluster: {server: "SERVER"}}], users: [{name: bench, user: {}}],` +
			` contexts: [{name: bench, context: {cluster: bench, user: bench}}], current-context: bench}` + "\n")
	if err := os.WriteFile(s.kubeconfig(), []byte(config), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the kubeconfig of a second plugin: %w", err), s.proxy.Close(), s.Kubelet.Close())
	}
	return s, nil
}

// serve passes what comes on to the API server through the gate, and returns its own address.
func (s *Second) serve(ctx context.Context, api *rest.Config) (string, error) {
	transport, err := rest.TransportFor(api)
	if err != nil {
		return "", err
	}
	target, err := url.Parse(api.Host)
	if err != nil {
		return "", err
	}
	s.Gate = NewGate(transport)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.proxy = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     s.Gate,
			FlushInterval: -1, // watches
			ErrorLog:      log.New(io.Discard, "", 0),
		},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = s.proxy.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

func (s *Second) kubeconfig() string { return filepath.Join(s.Dir, "kubeconfig") }

func (s *Second) config() string { return filepath.Join(s.Dir, "config.yaml") }

// startLimit is far longer than a plugin takes to serve.
const startLimit = 20 * time.Second

func (s *Second) cdiDir() string { return filepath.Join(s.Dir, "cdi") }

func (s *Second) pluginDir() string { return filepath.Join(s.Dir, "plugins", s.Driver) }

// Start runs the plugin and returns when it answers, with the time from its birth to its first answer.
func (s *Second) Start(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	if err := s.spawn(ctx, s.Binary); err != nil {
		return 0, err
	}
	if err := s.await(ctx); err != nil {
		return 0, errors.Join(err, s.Kill())
	}
	return time.Since(start), nil
}

// spawn runs the command with the plugin's arguments after its own.
func (s *Second) spawn(ctx context.Context, command ...string) (err error) {
	if s.log, err = os.OpenFile(filepath.Join(s.Dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("starting a second plugin: %w", err)
	}
	if s.Config != "" {
		command = append(command, "--node-config="+s.config())
	}
	if s.ConfigMap != "" {
		command = append(command, "--node-config-map="+s.ConfigMap)
	}
	s.command = exec.CommandContext(ctx, command[0], append(command[1:], "--driver-name="+s.Driver, "--node-name="+s.Node,
		"--pod-uid=second", "--kubeconfig="+s.kubeconfig(), "--host-root=/", "--http-endpoint=", "--cdi-root="+s.cdiDir(),
		"--kubelet-plugins-dir="+filepath.Dir(s.pluginDir()), "--kubelet-registrar-dir="+filepath.Join(s.Dir, "registry"),
		"--state-dir="+filepath.Join(s.Dir, "state"), "--kubelet-pod-resources-socket="+s.Kubelet.Socket)...)
	s.command.Stdout, s.command.Stderr = s.log, s.log
	if s.input, err = s.command.StdinPipe(); err == nil {
		err = s.command.Start()
	}
	if err != nil {
		s.command = nil
		return errors.Join(fmt.Errorf("starting a second plugin: %w", err), s.log.Close())
	}
	return nil
}

// await returns when the plugin answers.
func (s *Second) await(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if s.Plugin, err = Register(ctx, filepath.Join(s.Dir, "registry"), s.Driver); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a second plugin to serve: %w: %s", err, s.tail())
		}
	}
}

// tail is the end of the plugin's log.
func (s *Second) tail() string {
	text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	return string(text[max(0, len(text)-2000):])
}

// Kill ends the plugin without warning.
func (s *Second) Kill() error {
	if s.command == nil {
		return nil
	}
	failed := []error{s.command.Process.Kill()}
	_ = s.command.Wait() // says that it was killed
	s.command = nil
	if s.Plugin != nil {
		failed = append(failed, s.Plugin.Close())
		s.Plugin = nil
	}
	return errors.Join(append(failed, s.log.Close())...)
}

// Close ends the plugin and what stands in front of the API server, and removes the slices it published.
func (s *Second) Close(ctx context.Context, client kubernetes.Interface) error {
	return errors.Join(s.Kill(), s.Kubelet.Close(), s.proxy.Close(), removeSlices(ctx, client, s.Driver))
}

// held is how long is waited for requests that should not come.
const held = 200 * time.Millisecond

// CountRequests prepares and unprepares the claims, so many at once, with the gate shut: one GET of each claim passes, and
// everything else waits until the plugin has answered. It returns what the dearest of these batches took.
func (s *Second) CountRequests(ctx context.Context, c *Claims, claims []Claim, atOnce int) (costs Costs, err error) {
	defer s.Gate.Open()
	for batch := range slices.Chunk(claims, atOnce) {
		var admitted []string
		for _, claim := range batch {
			admitted = append(admitted, getClaim(claim))
		}
		s.Gate.Take()
		s.Gate.Shut(admitted...)
		if err := patiently(ctx, s.Plugin.Prepare, batch); err != nil {
			return costs, s.Gate.blame(err)
		}
		s.Gate.Open()
		if err := c.Reported(ctx, batch...); err != nil {
			return costs, err
		}
		prepare := neededFirst(s.Gate.Take())
		s.Gate.Shut()
		if err := patiently(ctx, s.Plugin.Unprepare, batch); err != nil {
			return costs, s.Gate.blame(err)
		}
		settle(ctx, held)
		s.Gate.Open()
		costs = costs.most(Costs{Prepare: prepare, Unprepare: all(s.Gate.Take())})
	}
	return costs, nil
}

// answerLimit is far longer than an answer takes that waits for nothing.
const answerLimit = 10 * time.Second

// patiently makes one call for each claim, all at once.
func patiently(ctx context.Context, call func(context.Context, ...Claim) error, claims []Claim) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_, err := together(claims, func(one Claim) error { return call(ctx, one) })
	return err
}

// settle lets time pass in which something may happen that should not.
func settle(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// neededFirst tells the requests that the answer needed from those that came later or could wait.
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

// all counts requests whenever they came.
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
