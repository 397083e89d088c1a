package hook

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// client contains the arguments of exclusive about the MPS share of the container.
type client struct {
	limit
	// shm is the host path of the file system that MPS clients mount at /dev/shm, shmSize its size in bytes.
	shm     string
	shmSize uint64
}

func parseClient(args []string) (c client, err error) {
	flags := newFlags(Exclusive)
	c.flags(flags)
	flags.StringVar(&c.shm, "shm", "", "host directory that MPS clients mount at /dev/shm")
	flags.Uint64Var(&c.shmSize, "shm-size", 0, "size of that directory in bytes")
	return c, parse(flags, args)
}

// exclusive fails a container that must not use the MPS share, and asks the plugin to repeat the reason in the status of the claim.
func (p Program) exclusive(of client) error {
	s, err := p.state()
	if err != nil {
		return err
	}
	config, err := readBundle(s.Bundle)
	if err != nil {
		return err
	}
	if err = config.otherDevice(of.Device); err == nil {
		err = bounded(func() error { return p.keepShm(s, config, of) })
	}
	if err != nil {
		report(of.limit, config.identity(), err)
	}
	return err
}

// otherDevice refuses a container with the mark of a device other than the named one. A tenant that sets such a variable only fails its own
// container; it cannot remove the variables of CDI, which the runtime sets after the pod's.
func (c *config) otherDevice(device string) error {
	own := protocol.Mark(device)
	for _, variable := range c.Process.Env {
		name, kind, _ := strings.Cut(variable, "=")
		if protocol.IsMark(name) && name != own {
			return fmt.Errorf("a container that uses a GPU with MPS cannot use another GPU, MIG device or share, "+
				"but this one also uses a device of type %.32q: keep one in the container's resources.claims, and use the other in another container", kind)
		}
	}
	return nil
}

// reportTime limits the wait for the plugin. After that only the events of the pod show the refusal.
const reportTime = 2 * time.Second

// report sends the reason of the refusal to the plugin.
func report(to limit, of identity, why error) {
	line, err := json.Marshal(protocol.Refusal{
		LimitedDevice: to.LimitedDevice, Refused: fmt.Sprintf("container %.64q of pod %.256q: %v", of.container, of.pod, why),
	})
	if err != nil {
		return
	}
	connection, err := net.DialTimeout("unix", to.socket, reportTime)
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(reportTime)); err == nil {
		_, _ = connection.Write(append(line, '\n'))
	}
}
