package mpsd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// command runs commands in one user interface of the control daemon. It executes the daemon's own file, even if the file was replaced or
// removed. The exit code says little: most errors are only in the daemon's log.
func (d *daemon) command(ctx context.Context, commands ...string) (output string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.service.Times.Ask,
		fmt.Errorf("%w: control daemon %s or one of its servers hangs", gpu.ErrTimeout, d.id))
	defer cancel()
	program, err := programOf(d.state.Daemon)
	if err != nil {
		return "", fmt.Errorf("%s: opening the program of control daemon %s: %w", strings.Join(commands, ", "), d.id, err)
	}
	defer program.Close()
	output, _, err = d.service.System.Run(ctx, Command{
		Path: fmt.Sprintf("/proc/self/fd/%d", program.Fd()), Args: []string{controlProgram},
		Env: []string{d.dir.mark(), "LC_ALL=C"}, Input: strings.Join(commands, "\n") + "\n",
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(commands, ", "), err)
	}
	return output, nil
}

// programOf opens the executable file of a process. By now the PID may belong to a process of a container, whose programs must not run as
// root of the host. If the process still runs after the file was opened, the file is its own.
func programOf(p hostfs.Process) (*os.File, error) {
	program, err := os.Open(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil {
		return nil, err
	}
	if !running(p) {
		return nil, errors.Join(fmt.Errorf("process %d exited", p.PID), program.Close())
	}
	return program, nil
}

const (
	// lastCommand follows every other command. Its answer is one number, which marks the end of the previous answer and shows that it is
	// complete.
	lastCommand = "get_default_active_thread_percentage"
	// attempts limits how often commands are repeated if answers were lost: the user interface sometimes exits before it has printed
	// everything.
	attempts = 10
)

// errLost says that answers were lost in each attempt.
var errLost = fmt.Errorf("%w: the user interface printed an incomplete answer %d times", gpu.ErrTimeout, attempts)

// ask runs read-only commands in one run of the user interface, and returns the lines that each command printed.
func (d *daemon) ask(ctx context.Context, commands ...string) ([][]string, error) {
	input := make([]string, 0, 2*len(commands))
	for _, command := range commands {
		input = append(input, command, lastCommand)
	}
	for range attempts {
		output, err := d.command(ctx, input...)
		if err != nil {
			return nil, err
		}
		answers, complete := answersTo(commands, strings.Split(strings.TrimSuffix(output, "\n"), "\n"))
		if complete {
			return answers, nil
		}
		if !running(d.state.Daemon) {
			return nil, fmt.Errorf("%s: control daemon %s exited", strings.Join(commands, ", "), d.id)
		}
	}
	return nil, fmt.Errorf("%s: %w", strings.Join(commands, ", "), errLost)
}

// answersTo assigns lines to the commands that printed them; false if some were lost. The answer to lastCommand follows each command's
// answer.
func answersTo(commands, lines []string) (answers [][]string, complete bool) {
	for _, command := range commands {
		end := 0
		if strings.Contains(command, percentageCommand) && len(lines) > 0 && isPercentage(lines[0]) {
			end = 1 // the answer of lastCommand itself
		}
		for end < len(lines) && !isPercentage(lines[end]) {
			end++
		}
		if end >= len(lines) {
			return nil, false
		}
		answers, lines = append(answers, lines[:end]), lines[end+1:]
	}
	return answers, len(lines) == 0
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

// parsePIDs returns the lines that are PIDs.
func parsePIDs(lines []string) []int {
	var pids []int
	for _, line := range lines {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// listServers is the command that prints the PIDs of the servers.
const listServers = "get_server_list"

// servers returns the PIDs of the servers.
func (d *daemon) servers(ctx context.Context) ([]int, error) {
	answers, err := d.ask(ctx, listServers)
	if err != nil {
		return nil, err
	}
	return parsePIDs(answers[0]), nil
}

// clients returns the PIDs of the clients. It fails if a server does not answer.
func (d *daemon) clients(ctx context.Context) ([]int, error) {
	servers, err := d.servers(ctx)
	if err != nil {
		return nil, err
	}
	var clients []int
	for _, server := range servers {
		answers, err := d.ask(ctx, fmt.Sprintf("get_client_list %d", server))
		if err != nil {
			return nil, err
		}
		for _, line := range answers[0] {
			if strings.Contains(line, "<busy>") {
				return nil, fmt.Errorf("MPS server %d does not answer: %w", server, gpu.ErrTimeout)
			}
		}
		clients = append(clients, parsePIDs(answers[0])...)
	}
	return clients, nil
}
