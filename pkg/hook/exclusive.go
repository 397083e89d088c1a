package hook

import (
	"fmt"
	"strings"

	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// exclusive fails a container that has the mark of another device than that of this name. A tenant that sets such a variable fails its own
// container; it cannot take away those of CDI, which the runtime sets after the pod's.
func (p Program) exclusive(device string) error {
	s, err := p.state()
	if err != nil {
		return err
	}
	config, err := readBundle(s.Bundle)
	if err != nil {
		return err
	}
	own := protocol.Mark(device)
	for _, variable := range config.Process.Env {
		name, kind, _ := strings.Cut(variable, "=")
		if protocol.IsMark(name) && name != own {
			return fmt.Errorf("a container that uses a GPU with MPS cannot use another GPU, MIG device or share, "+
				"and this one has a device of type %.32q too: leave one in the container's resources.claims, and have another container use the other", kind)
		}
	}
	return nil
}
