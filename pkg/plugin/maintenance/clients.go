package maintenance

import (
	"fmt"
	"strings"

	"github.com/prism-gpu/prism/pkg/maintenance"
)

// Client is a process that has a GPU open.
type Client struct {
	// PID is the one on the host.
	PID int
	// Command is the name of the program, which the process chooses.
	Command string
	// Pod is "<namespace>/<name>" of its pod, or the UID of the pod if its name is not known; empty for a process of no pod.
	Pod string
}

const (
	// mostClients bounds the listed processes, clientLimit the text of each, in bytes: an Event has at most 1 KiB.
	mostClients = 8
	podLimit    = 80
	nameLimit   = 15
)

// listClients names processes; empty without one.
func listClients(clients []Client, err error) string {
	if err != nil {
		return fmt.Sprintf("processes that have it open could not be found: %v", err)
	}
	if len(clients) == 0 {
		return ""
	}
	var listed []string
	for _, c := range clients[:min(len(clients), mostClients)] {
		text := fmt.Sprintf("pid %d (%s)", c.PID, maintenance.Line(c.Command, nameLimit))
		if c.Pod != "" {
			text += fmt.Sprintf(" of pod %.*s", podLimit, c.Pod)
		}
		listed = append(listed, text)
	}
	if more := len(clients) - len(listed); more > 0 {
		listed = append(listed, fmt.Sprintf("%d more", more))
	}
	return "a reset is refused until these processes have exited: " + strings.Join(listed, ", ")
}
