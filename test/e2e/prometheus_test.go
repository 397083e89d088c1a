package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	// prometheusAddress is the address of Prometheus in the cluster's network namespace.
	prometheusAddress = "127.0.0.1:9090"
	// buildLimit is how long the first build of Prometheus may take, which takes longest.
	buildLimit = 40 * time.Minute
	// requestLimit is the timeout of a request to a pod that is gone.
	requestLimit = time.Minute
)

// prometheus is a Prometheus beside the cluster: each second it scrapes the targets of the chart's monitors, and evaluates the chart's
// rules.
type prometheus struct {
	client *http.Client
	log    string
	dir    string
	// kill stops the process; ended is closed when it has exited.
	kill  func()
	ended chan struct{}
}

// series is one series of an answer, at one time.
type series struct {
	labels map[string]string
	value  float64
}

var scraping struct {
	sync.Mutex
	server *prometheus
	err    error
}

// prometheus returns the cluster's Prometheus. The first test that needs it starts it.
func (ns *namespace) prometheus() *prometheus {
	ns.t.Helper()
	scraping.Lock()
	defer scraping.Unlock()
	if scraping.server == nil && scraping.err == nil {
		scraping.server, scraping.err = startPrometheus(ns.cluster)
	}
	require.NoError(ns.t, scraping.err)
	return scraping.server
}

// stopPrometheus stops a Prometheus that a test started.
func stopPrometheus() {
	scraping.Lock()
	defer scraping.Unlock()
	if p := scraping.server; p != nil {
		p.kill()
		<-p.ended
		_ = os.RemoveAll(p.dir)
	}
}

func startPrometheus(c *cluster) (*prometheus, error) {
	program, err := c.built("prometheus", "prometheus")
	if err != nil {
		return nil, err
	}
	configuration, err := c.scrapeConfiguration()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "prism-prometheus-")
	if err != nil {
		return nil, err
	}
	p := &prometheus{client: c.inside(), log: filepath.Join(dir, "log"), dir: dir}
	file := filepath.Join(dir, "prometheus.json") // JSON is YAML
	if err := os.WriteFile(file, configuration, 0o600); err != nil {
		return nil, err
	}
	// nsenter executes Prometheus.
	err = p.start("nsenter", "--net="+c.networkNamespace(), program, "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+prometheusAddress, "--log.level=warn")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, p.ready()
}

// start starts the process, which ends if the tests are killed.
func (p *prometheus) start(line ...string) error {
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(context.Background())
	p.kill, p.ended = cancel, make(chan struct{})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread ends that started the process: it belongs to this goroutine alone.
		runtime.LockOSThread()
		defer close(p.ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return <-started
}

// ready waits until Prometheus answers.
func (p *prometheus) ready() error {
	limit := time.After(startLimit)
	for {
		_, err := p.get("/-/ready", nil)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
		case <-limit:
		case <-time.After(interval):
			continue
		}
		p.kill()
		return fmt.Errorf("starting Prometheus: %w\n%s", err, p.printed())
	}
}

// built returns the path of a program of a part that no cluster needs, which is built the first time.
func (c *cluster) built(part, program string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	line := c.localcluster("build", part)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w: %s", part, err, stderr.Bytes())
	}
	for path := range strings.FieldsSeq(string(out)) {
		if filepath.Base(path) == program {
			return path, nil
		}
	}
	return "", fmt.Errorf("building %s: no %s in %q", part, program, out)
}

// prometheusLog returns the output of Prometheus, if a test started it.
func prometheusLog() string {
	scraping.Lock()
	defer scraping.Unlock()
	if scraping.server == nil {
		return ""
	}
	return scraping.server.printed()
}

// printed returns the log, which contains warnings and errors.
func (p *prometheus) printed() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *prometheus) get(path string, parameters url.Values) ([]byte, error) {
	return get(p.client, "http://"+prometheusAddress+path+"?"+parameters.Encode())
}

// ask evaluates a query now.
func (p *prometheus) ask(query string, args ...any) ([]series, error) {
	query = fmt.Sprintf(query, args...)
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  []any
			}
		}
	}
	text, err := p.get("/api/v1/query", url.Values{"query": {query}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", query, err)
	}
	var found []series
	for _, r := range answer.Data.Result {
		number, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the answer to %s: %w", query, err)
		}
		found = append(found, series{r.Metric, value})
	}
	return found, nil
}

// number evaluates a query with one series as its result.
func (p *prometheus) number(query string, args ...any) (float64, error) {
	found, err := p.ask(query, args...)
	if err != nil {
		return 0, err
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%s has %d series, not 1: %v", fmt.Sprintf(query, args...), len(found), found)
	}
	return found[0].value, nil
}

// evaluates repeats a check, which must succeed every time, until Prometheus has evaluated each group of rules this number of times more.
func (p *prometheus) evaluates(t *testing.T, times int, check func() error) {
	t.Helper()
	before, err := p.evaluations()
	require.NoError(t, err)
	eventually(t, startLimit, func() error {
		require.NoError(t, check())
		now, err := p.evaluations()
		for group, n := range now {
			if n < before[group]+times {
				err = errors.Join(err, fmt.Errorf("the rules of %s were evaluated %d times since", group, n-before[group]))
			}
		}
		return err
	})
}

// evaluation matches a line of Prometheus' own metrics that counts the evaluations of a group of rules.
var evaluation = regexp.MustCompile(`^prometheus_rule_group_iterations_total\{rule_group="([^"]+)"\} (\S+)$`)

// evaluations counts the evaluations of each group of rules.
func (p *prometheus) evaluations() (map[string]int, error) {
	text, err := p.get("/metrics", nil)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		match := evaluation.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			continue
		}
		n, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return nil, fmt.Errorf("reading how often rules were evaluated: %w", err)
		}
		counts[match[1]] = int(n)
	}
	if len(counts) == 0 {
		return nil, errors.New("Prometheus counts no evaluations of rules")
	}
	return counts, nil
}

// networkNamespace returns the network namespace with the addresses of the pods and the API server.
func (c *cluster) networkNamespace() string { return "/run/netns/prism-" + c.name }

// inside returns a client that connects from the cluster's network namespace.
func (c *cluster) inside() *http.Client {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			// The thread is never unlocked, so it ends with the goroutine, and no other goroutine gets the namespace.
			runtime.LockOSThread()
			if err = enter(c.networkNamespace()); err == nil {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			}
		}()
		<-done
		return conn, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: requestLimit}
}

func enter(networkNamespace string) error {
	file, err := os.Open(networkNamespace)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
}

// get reads a page.
func get(client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, response.Status, text)
	}
	return text, err
}
