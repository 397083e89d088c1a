package mpsd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// command runs commands in one user interface of the control daemon, which is the daemon's own file, also where that was replaced or
// removed. The exit code says little: most errors are only in the daemon's log.
func (d *daemon) command(ctx context.Context, commands ...string) (output string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.service.Times.Ask,
		fmt.Errorf("%w: control daemon %s or a server of it hangs", gpu.ErrTimeout, d.id))
	defer cancel()
	output, _, err = d.service.System.Run(ctx, Command{
		Path: fmt.Sprintf("/proc/%d/exe", d.state.Daemon.PID), Args: []string{controlProgram},
		Env: []string{d.dir.mark(), "LC_ALL=C"}, Input: strings.Join(commands, "\n") + "\n",
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(commands, ", "), err)
	}
	return output, nil
}

const (
	// lastCommand follows every other one: its answer is one number, and shows that none before it was lost.
	lastCommand = "get_default_active_thread_percentage"
	// attempts is how often a command is repeated whose answer was lost: the user interface sometimes exits before it has printed all.
	attempts = 10
)

// errLost is for answers that were lost each time.
var errLost = fmt.Errorf("%w: the user interface printed no complete answer %d times", gpu.ErrTimeout, attempts)

// ask returns the lines that a command which changes nothing printed.
func (d *daemon) ask(ctx context.Context, command string) ([]string, error) {
	for range attempts {
		output, err := d.command(ctx, command, lastCommand)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
		if last := len(lines) - 1; isPercentage(lines[last]) {
			return lines[:last], nil
		}
		if !running(d.state.Daemon) {
			return nil, fmt.Errorf("%s: control daemon %s exited", command, d.id)
		}
	}
	return nil, fmt.Errorf("%s: %w", command, errLost)
}

func isPercentage(line string) bool {
	_, err := parsePercentage(line)
	return err == nil
}

func parsePercentage(line string) (float64, error) {
	value, err := strconv.ParseFloat(line, 64)
	if err != nil || !strings.Contains(line, ".") {
		return 0, errors.New("not a percentage: " + line)
	}
	return value, nil
}

// numbers are the lines that are a pid.
func numbers(lines []string) []int {
	var pids []int
	for _, line := range lines {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// servers are the pids of the servers.
func (d *daemon) servers(ctx context.Context) ([]int, error) {
	lines, err := d.ask(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}
	return numbers(lines), nil
}

// clients are the pids of the clients. An error: a server does not answer.
func (d *daemon) clients(ctx context.Context) ([]int, error) {
	servers, err := d.servers(ctx)
	if err != nil {
		return nil, err
	}
	var clients []int
	for _, server := range servers {
		lines, err := d.ask(ctx, fmt.Sprintf("get_client_list %d", server))
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			if strings.Contains(line, "<busy>") {
				return nil, fmt.Errorf("MPS server %d does not answer: %w", server, gpu.ErrTimeout)
			}
		}
		clients = append(clients, numbers(lines)...)
	}
	return clients, nil
}
