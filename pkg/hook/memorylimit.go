package hook

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// memoryLimit asks the plugin to limit the memory of the device that the container's processes can allocate.
func (p Program) memoryLimit(of limit) error {
	s, err := p.state()
	if err != nil {
		return err
	}
	cgroup, err := p.cgroup(s.Pid)
	if err != nil {
		return fmt.Errorf("finding the cgroup of the container: %w", err)
	}
	config, err := readBundle(s.Bundle)
	if err != nil {
		return err
	}
	request, err := json.Marshal(protocol.LimitRequest{LimitedDevice: of.LimitedDevice, Cgroup: cgroup, Others: config.others(of)})
	if err != nil {
		return err
	}
	var reason error // the last error of the plugin, or of the connection
	answered := false
	pause := time.NewTicker(p.Pause)
	defer pause.Stop()
	for end := time.Now().Add(p.RetryBudget); ; <-pause.C {
		answer, err := ask(of.socket, request, end)
		switch {
		case err == nil && answer.Error == "":
			return nil
		case err == nil && !answer.Retry:
			return fmt.Errorf("limiting the GPU memory of the container: %s", answer.Error)
		case err == nil:
			reason, answered = errors.New(answer.Error), true
		case !answered:
			reason = err
		}
		if !time.Now().Add(p.Pause).Before(end) {
			return fmt.Errorf("limiting the GPU memory of the container: no limit after %v: %w; check the kubelet plugin of Prism on the node",
				p.RetryBudget, reason)
		}
	}
}

// others returns the limits of other claims that other hooks of the container request from the same plugin.
func (c *config) others(own limit) (devices []protocol.LimitedDevice) {
	for _, hook := range c.Hooks.CreateRuntime {
		if filepath.Base(hook.Path) != programName || len(hook.Args) < 2 || hook.Args[1] != MemoryLimit {
			continue
		}
		// Invalid arguments fail that hook.
		if other, err := parseLimit(hook.Args[2:]); err == nil && other.socket == own.socket && other.Claim != own.Claim {
			devices = append(devices, other.LimitedDevice)
		}
	}
	return devices
}

// ask sends one request and reads the response. The socket belongs to the newest plugin process; a terminating process does not answer.
func ask(socket string, request []byte, end time.Time) (answer protocol.LimitAnswer, err error) {
	connection, err := net.DialTimeout("unix", socket, time.Until(end))
	if err != nil {
		return answer, err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(end); err != nil {
		return answer, err
	}
	if _, err := connection.Write(append(request, '\n')); err != nil {
		return answer, err
	}
	line, err := bufio.NewReaderSize(connection, protocol.MaxLine).ReadSlice('\n')
	if err != nil {
		return answer, fmt.Errorf("reading the answer of %s: %w", socket, err)
	}
	err = json.Unmarshal(line, &answer)
	return answer, err
}

// cgroup returns the path of a process's cgroup below the mount of cgroup v2.
func (p Program) cgroup(pid int) (string, error) {
	if pid <= 0 {
		return "", fmt.Errorf("the OCI state contains pid %d", pid)
	}
	file, err := os.Open(filepath.Join(p.Proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	raw, err := readAll(file, maxCgroup)
	if err != nil {
		return "", err
	}
	path, unified := strings.CutPrefix(strings.TrimSuffix(string(raw), "\n"), "0::")
	if !unified || strings.Contains(path, "\n") {
		return "", errors.New("limits of GPU memory require a host with cgroup v2 only (systemd.unified_cgroup_hierarchy=1)")
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return "", fmt.Errorf("the cgroup %q of process %d does not belong to a container", path, pid)
	}
	return path, nil
}
