//go:build linux

package cluster

import (
	"path/filepath"

	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// The services of the control plane, by their names in commands.
const (
	etcd              = "etcd"
	apiserver         = "apiserver"
	scheduler         = "scheduler"
	controllerManager = "controller-manager"
)

// controlPlaneDir contains the control plane's spec, socket, log and data.
func (c *Cluster) controlPlaneDir() string { return filepath.Join(c.Dir, "control-plane") }

func (c *Cluster) controlPlaneLog(service string) string {
	return filepath.Join(c.controlPlaneDir(), "log", service+".log")
}

// controlPlane is the spec of the first process of the control plane.
func (c *Cluster) controlPlane() Spec {
	service := func(name, url string, args []string) supervise.Service {
		return supervise.Service{Name: name, Args: args, Log: c.controlPlaneLog(name), Probe: supervise.Probe{URL: url}}
	}
	return Spec{
		Control: filepath.Join(c.controlPlaneDir(), "control"),
		Log:     filepath.Join(c.controlPlaneDir(), "log", "init.log"),
		Forward: apiAddress + ":443",
		Services: []supervise.Service{
			service(etcd, "http://127.0.0.1:2379/health", c.etcdArgs()),
			service(apiserver, "https://127.0.0.1:443/readyz", c.apiserverArgs()),
			service(scheduler, "https://127.0.0.1:10259/healthz", c.schedulerArgs()),
			service(controllerManager, "https://127.0.0.1:10257/healthz", c.controllerManagerArgs()),
		},
	}
}

// etcdArgs: the data of a test cluster may be lost in a power cut of the machine, so nothing waits for the disk.
func (c *Cluster) etcdArgs() []string {
	return []string{
		c.Program("etcd"), "--data-dir=" + filepath.Join(c.controlPlaneDir(), "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--log-level=warn",
	}
}

func (c *Cluster) apiserverArgs() []string {
	pki := func(file string) string { return filepath.Join(c.pki(), file) }
	return []string{
		c.Program("kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=443", "--bind-address=0.0.0.0", "--advertise-address=" + apiAddress,
		"--service-cluster-ip-range=" + serviceRange, "--enable-aggregator-routing=true",
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--service-account-key-file=" + pki("service-account.pub"), "--service-account-signing-key-file=" + pki("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + filepath.Join(c.frontProxy(), "ca.crt"), "--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + filepath.Join(c.frontProxy(), "client.crt"),
		"--proxy-client-key-file=" + filepath.Join(c.frontProxy(), "client.key"),
		"--allow-privileged=true", "--profiling=false",
	}
}

func (c *Cluster) schedulerArgs() []string {
	return append(c.clientArgs("kube-scheduler", scheduler), "--bind-address=127.0.0.1")
}

func (c *Cluster) controllerManagerArgs() []string {
	return append(c.clientArgs("kube-controller-manager", controllerManager),
		"--bind-address=127.0.0.1",
		"--service-account-private-key-file="+filepath.Join(c.pki(), "service-account.key"),
		"--root-ca-file="+filepath.Join(c.pki(), "ca.crt"),
		"--use-service-account-credentials=true",
		"--kube-api-qps=100", "--kube-api-burst=200")
}

func (c *Cluster) clientArgs(program, user string) []string {
	kubeconfig := c.kubeconfig(user)
	return []string{
		c.Program(program), "--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false", "--profiling=false",
	}
}
