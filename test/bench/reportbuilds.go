package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/config"
)

// Numbers of samples for users of the API of reports: the builds alternate, and each is first equally often.
const (
	reportRounds = 2
	aloneTime    = 5 * time.Second
	loadTime     = 30 * time.Second
	// User A has the maximum number of reports of a namespace on a node. The load deletes them.
	loadClaims, loadReports = 8, 512
	listedReports           = 100
	contentBytes            = 1 << 20
	// listRatio is the largest p99 of a list beside the load, relative to the build before.
	listRatio = 0.2
)

const reportsDriver = "tenants.bench"

// The network namespaces: the plugin answers in the namespace of the installed plugin's pod, the controller in the node's.
const (
	nodeReportsPort, controllerPort = 18444, 19443
	probeEndpoint                   = "127.0.0.1:18081"
	pluginSelector                  = "app.kubernetes.io/component=kubelet-plugin"
	controllerLease                 = "bench-controller"
)

// listed holds the measurements of a build.
type listed struct {
	alone, loaded Samples
	answers       [requestKinds]answers
}

// tenantLists measures lists of user B alone, and while user A sends each request as soon as the last one is answered, with this build and
// with the one before.
func (b *bencher) tenantLists(ctx context.Context) (err error) {
	if b.Before == "" {
		return errors.New("the programs of the build before are required: --before")
	}
	builds := []struct {
		programs string
		listed   listed
	}{{programs: b.Before}, {programs: filepath.Dir(b.Binary)}}
	for round := range reportRounds {
		for i := range builds {
			one := &builds[(i+round)%len(builds)]
			if err := b.listedWith(ctx, one.programs, &one.listed); err != nil {
				return fmt.Errorf("with the programs of %s: %w", one.programs, err)
			}
		}
	}
	before, now := builds[0].listed, builds[1].listed
	b.report.Add("user B lists reports of a node, user A polls, downloads and deletes there", b.BeforeName, now.rows(before, b.BeforeName)...)
	return nil
}

// rows returns the rows of a section.
func (l listed) rows(before listed, name string) []Row {
	rows := []Row{
		{Name: "list of B, alone: " + name, Samples: before.alone},
		{Name: "list of B, alone", Samples: l.alone, Base: before.alone},
		{Name: "list of B, with the requests of A: " + name, Samples: before.loaded},
		{Name: "list of B, with the requests of A", Samples: l.loaded, Base: before.loaded, Budget: RatioAtP99(listRatio)},
	}
	return append(append(rows, requestRows(before.answers, ": "+name)...), requestRows(l.answers, "")...)
}

// requestRows returns the rows about the requests of user A.
func requestRows(of [requestKinds]answers, suffix string) []Row {
	all := answers{}
	for _, one := range of {
		all.add(one)
	}
	others, codes := all.others()
	return []Row{
		{Name: "requests of A that were carried out" + suffix, Count: all.done(), Note: fmt.Sprintf("(%d %s, %d %s, %d %s)",
			of[listing].done(), kindNames[listing], of[downloading].done(), kindNames[downloading], of[deleting].done(), kindNames[deleting])},
		{Name: "requests of A that were refused, with code 429" + suffix, Count: all[http.StatusTooManyRequests]},
		{Name: "requests of A with other answers" + suffix, Count: others, Note: codes},
	}
}

// listedWith starts the plugin and the controller of a build, whose reports are new, and measures.
func (b *bencher) listedWith(ctx context.Context, programs string, into *listed) (err error) {
	a, err := b.makeReportUser(ctx, "a")
	defer func() { err = errors.Join(err, b.removeReportUser(context.WithoutCancel(ctx), a)) }()
	if err != nil {
		return err
	}
	u, err := b.makeReportUser(ctx, "b")
	defer func() { err = errors.Join(err, b.removeReportUser(context.WithoutCancel(ctx), u)) }()
	if err != nil {
		return err
	}
	s, err := b.newSecond(ctx, reportsDriver, false)
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	if err := b.writeReports(s, a, u); err != nil {
		return err
	}
	c, err := b.startReports(ctx, s, programs)
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	for _, user := range []*reportUser{a, u} {
		if err := user.complete(ctx, startLimit); err != nil {
			return fmt.Errorf("%w; the controller's log ends with: %s; the plugin's log ends with: %s", err, c.tail(), s.tail())
		}
	}
	return into.measure(ctx, a, u)
}

// measure measures lists of user b, alone and while user a sends requests.
func (l *listed) measure(ctx context.Context, a, b *reportUser) error {
	alone, err := b.times(ctx, aloneTime)
	l.alone = append(l.alone, alone...)
	if err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	counted := make(chan [requestKinds]answers)
	go func() { counted <- a.load(loading) }()
	loaded, err := b.times(ctx, loadTime)
	l.loaded = append(l.loaded, loaded...)
	stop()
	for kind, one := range <-counted {
		if l.answers[kind] == nil {
			l.answers[kind] = answers{}
		}
		l.answers[kind].add(one)
		if one.done() == 0 && err == nil {
			err = fmt.Errorf("no request of user A (%s) was carried out: answers by status code: %v", kindNames[kind], one)
		}
	}
	return err
}

// writeReports puts the reports of both users into the plugin's directory.
func (b *bencher) writeReports(s *Second, a, u *reportUser) (err error) {
	dir, content := filepath.Join(s.Dir, "state", "profiles"), make([]byte, contentBytes)
	a.names, err = storedReports{node: b.Node, namespace: a.namespace, first: 1, claims: loadClaims, each: loadReports}.write(dir, content)
	if err != nil {
		return err
	}
	u.names, err = storedReports{node: b.Node, namespace: u.namespace, first: loadClaims + 1, claims: 1, each: listedReports}.write(dir, content)
	return err
}

// reportController is the process of a controller to which the API server forwards requests for reports.
type reportController struct {
	*Program

	bencher *bencher
	// namespace contains its Lease.
	namespace string
	remove    func(context.Context) error
}

// startReports starts the plugin, and then the controller. The caller closes the result even after an error.
func (b *bencher) startReports(ctx context.Context, s *Second, programs string) (*reportController, error) {
	c := &reportController{bencher: b}
	pod, address, err := b.installedPlugin(ctx)
	if err != nil {
		return c, err
	}
	c.namespace = pod.Namespace
	serving := filepath.Join(s.Dir, "controller")
	if c.Program, err = NewProgram("prism-controller", serving, filepath.Join(serving, "cdi")); err != nil {
		return c, err
	}
	authority, err := writeCertificates(serving, serverName(s.Claims.namespace))
	if err != nil {
		return c, err
	}
	// The controller finds the plugin at the address of this pod.
	s.Command = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", b.plugin.PID), "--"},
		prismCommand(s.Program, filepath.Join(programs, "prism-kubelet-plugin"), b.Node, s.Kubelet.Socket, "--profiler",
			"--reports-endpoint=:"+strconv.Itoa(nodeReportsPort), "--reports-certificate="+filepath.Join(serving, "node"))...)
	if _, err := s.Start(ctx); err != nil {
		return c, err
	}
	if _, err := Published(ctx, b.client, s.Driver, b.Node, aGPU); err != nil {
		return c, err
	}
	if err := c.spawn(ctx, filepath.Join(programs, "prism-controller"), "--driver-name="+s.Driver, "--kubeconfig="+s.kubeconfig(), "--namespace="+c.namespace,
		"--lease="+controllerLease, "--device-classes=false", "--metrics-endpoint=0", "--probe-endpoint="+probeEndpoint,
		"--admission-endpoint=:"+strconv.Itoa(controllerPort), "--admission-certificate="+filepath.Join(serving, "serving"), "--admission-webhook=false",
		"--reports-certificate="+filepath.Join(serving, "client"), "--plugin-selector="+pluginSelector, "--plugin-port="+strconv.Itoa(nodeReportsPort)); err != nil {
		return c, err
	}
	if err := c.answers(ctx); err != nil {
		return c, err
	}
	c.remove, err = b.registerReports(ctx, s.Claims.namespace, address, controllerPort, authority)
	return c, err
}

// writeCertificates creates the directories node, client and serving with the certificates of the plugin and of the controller. It returns
// the authority of the controller's certificate for the API server.
func writeCertificates(dir, name string) (authority []byte, err error) {
	var pairs [3]keyPair
	for i, of := range []string{config.ReportsServerName, config.ReportsClientName, name} {
		if pairs[i], err = newKeyPair(of); err != nil {
			return nil, err
		}
	}
	node, client, serving := pairs[0], pairs[1], pairs[2]
	return serving.certificate, errors.Join(node.write(filepath.Join(dir, "node"), client), client.write(filepath.Join(dir, "client"), node),
		serving.write(filepath.Join(dir, "serving"), serving))
}

// answers waits until the controller is ready.
func (c *reportController) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probeEndpoint+"/readyz", nil)
	if err != nil {
		return err
	}
	for {
		response, err := http.DefaultClient.Do(probe)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the controller: %w: %s", err, c.tail())
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// close removes the registration from the API server, and stops the process.
func (c *reportController) close(ctx context.Context) error {
	if c.Program == nil {
		return nil
	}
	var failed []error
	if c.remove != nil {
		failed = append(failed, c.remove(ctx))
	}
	failed = append(failed, c.Kill())
	if err := c.bencher.client.CoordinationV1().Leases(c.namespace).Delete(ctx, controllerLease, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// installedPlugin returns the pod of the plugin on this node, and the node's address.
func (b *bencher) installedPlugin(ctx context.Context) (pod *corev1.Pod, address string, err error) {
	pods, err := b.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: pluginSelector, FieldSelector: "spec.nodeName=" + b.Node})
	if err != nil {
		return nil, "", fmt.Errorf("finding the pod of the plugin: %w", err)
	}
	node, err := b.client.CoreV1().Nodes().Get(ctx, b.Node, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("finding the address of node %s: %w", b.Node, err)
	}
	for _, one := range node.Status.Addresses {
		if one.Type == corev1.NodeInternalIP && net.ParseIP(one.Address) != nil {
			address = one.Address
		}
	}
	if len(pods.Items) == 0 || address == "" {
		return nil, "", fmt.Errorf("node %s has %d pods of the plugin and address %q: one of each is required", b.Node, len(pods.Items), address)
	}
	return &pods.Items[0], address, nil
}
