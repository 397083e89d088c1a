//go:build linux

package supervise

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Probe checks whether a service is ready. At most one field is set; without one, a running process is sufficient.
type Probe struct {
	// Socket is a unix socket that must accept a connection.
	Socket string `json:"socket,omitempty"`
	// URL must answer 200. Certificates are not checked, because the probe only checks liveness.
	URL string `json:"url,omitempty"`
}

const probeTimeout = 15 * time.Second

var probeClient = &http.Client{
	Timeout: probeTimeout,
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // liveness of a loopback endpoint
		DisableKeepAlives: true,
	},
}

func (p Probe) check() error {
	switch {
	case p.Socket != "":
		conn, err := net.DialTimeout("unix", p.Socket, probeTimeout)
		if err != nil {
			return err
		}
		return conn.Close()
	case p.URL != "":
		resp, err := probeClient.Get(p.URL)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", p.URL, resp.Status)
		}
	}
	return nil
}
