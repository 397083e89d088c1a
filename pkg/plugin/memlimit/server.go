package memlimit

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// Server answers prism-hook.
type Server struct {
	// Socket is the path of its socket, the same on the host.
	Socket string
	// Record reads the record of a claim; it returns gpu.ErrNotFound if there is none.
	Record func(claimUID string) (*checkpoint.Record, error)
	// Driver returns the open driver.
	Driver func() (gpu.MemoryLimiter, error)
	// Cgroup returns this process's path of the directory of a cgroup of the host.
	Cgroup func(path string) (string, error)
	// Refused is called for the record and the device of a container that prism-hook has failed, with the reason.
	Refused func(r *checkpoint.Record, device, why string)
	// Pause is between two attempts to serve, and between two checks that a process serves the socket; 0: 5 s.
	Pause time.Duration
}

// requestTime is the time for one request, less than prism-hook waits.
const requestTime = 8 * time.Second

// Run serves until the context ends, and then returns nil. The process that called it last owns the socket, and when that exits an earlier
// one owns it again. While it cannot serve, containers with limits do not start, and all else works.
func (s Server) Run(ctx context.Context) error {
	s.Pause = cmp.Or(s.Pause, 5*time.Second)
	for {
		err := s.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errSocketLost) {
			klog.FromContext(ctx).V(2).Info("Replaced the socket of a process that exited", "socket", s.Socket)
			continue
		}
		klog.FromContext(ctx).Error(err, "GPU memory of containers cannot be limited now", "socket", s.Socket)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.Pause):
		}
	}
}

// errSocketLost is of a listener whose socket another process has replaced, which has exited.
var errSocketLost = errors.New("no process serves the socket")

// listen serves on a separate socket until that fails or the context ends, or no process serves the path any more.
func (s Server) listen(ctx context.Context) error {
	listener, own, err := listen(s.Socket)
	if err != nil {
		return err
	}
	listening, stop := context.WithCancelCause(ctx) // requests continue when the socket is replaced
	defer stop(nil)
	defer func() { _ = listener.Close() }()
	defer context.AfterFunc(listening, func() { _ = listener.Close() })()
	go func() {
		if s.lost(listening, own) {
			stop(errSocketLost)
		}
	}()
	err = s.accept(ctx, listener)
	if cause := context.Cause(listening); errors.Is(cause, errSocketLost) {
		return cause
	}
	return err
}

// lost waits until no process serves the path; false: the context has ended before.
func (s Server) lost(ctx context.Context, own os.FileInfo) bool {
	ticker := time.NewTicker(s.Pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if !accepts(s.Socket, own) {
				return true
			}
		}
	}
}

// accept serves requests until the listener is closed.
func (s Server) accept(ctx context.Context, listener *net.UnixListener) error {
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		go s.serve(ctx, connection)
	}
}

// serve answers one request.
func (s Server) serve(ctx context.Context, connection *net.UnixConn) {
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok && connection.SetDeadline(deadline) != nil {
		return
	}
	var request struct {
		protocol.LimitRequest
		Refused string `json:"refused"`
	}
	err := checkPeer(connection)
	if err == nil {
		err = read(connection, &request)
	}
	switch {
	case errors.Is(err, io.EOF) && request.Claim == "":
		return // another process has checked whether this one serves
	case err == nil && request.Refused != "":
		s.refused(ctx, request.LimitedDevice, request.Refused)
		return
	case err == nil:
		err = s.limit(ctx, request.LimitRequest)
	}
	logger := klog.FromContext(ctx).WithValues("claimUID", request.Claim, "device", request.Device, "cgroup", request.Cgroup)
	var answer protocol.LimitAnswer
	if err != nil {
		retry := errors.Is(err, gpu.ErrDriverNotLoaded) || errors.Is(err, gpu.ErrTimeout) || errors.Is(err, gpu.ErrInUse)
		answer = protocol.LimitAnswer{Error: err.Error(), Retry: retry}
		logger.Info("GPU memory of a container is not limited", "reason", answer.Error, "retry", answer.Retry)
	} else {
		logger.V(2).Info("Limited the GPU memory of a container")
	}
	if line, err := json.Marshal(answer); err == nil {
		_, _ = connection.Write(append(line, '\n')) // a hook that has gone asks again
	}
}

// refused reports a container that prism-hook has failed. The claim may be unprepared by now.
func (s Server) refused(ctx context.Context, of protocol.LimitedDevice, why string) {
	logger := klog.FromContext(ctx).WithValues("claimUID", of.Claim, "device", of.Device, "reason", why)
	record, err := s.Record(of.Claim)
	if err != nil || record.State != checkpoint.Done {
		logger.Error(err, "A container is refused, and its claim is not prepared")
		return
	}
	logger.Info("A container is refused")
	s.Refused(record, of.Device, why)
}

func read(connection *net.UnixConn, request any) error {
	line, err := bufio.NewReaderSize(connection, protocol.MaxLine).ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, request)
	}
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	return nil
}

// limit limits the memory of a container to the limit of its device's claim on that GPU, and verifies that the limit is in force. It
// refuses if another claim of the container also limits memory there: the second limit would replace the first. That is known from the
// request, because a process may answer only one of the two.
func (s Server) limit(ctx context.Context, request protocol.LimitRequest) error {
	if !path.IsAbs(request.Cgroup) || path.Clean(request.Cgroup) != request.Cgroup || request.Cgroup == "/" {
		return fmt.Errorf("%q is not the cgroup of a container", request.Cgroup)
	}
	own, result, memory, err := s.share(request.LimitedDevice)
	if err != nil {
		return err
	}
	for _, device := range request.Others {
		other, others, _, err := s.share(device)
		if err != nil {
			return err
		}
		if others.GPUUUID == result.GPUUUID {
			return fmt.Errorf("two claims limit the GPU memory of one container on GPU %s: %s/%s and %s/%s; use one claim with a request for each "+
				"share, or a container for each claim", result.GPUUUID, own.Namespace, own.Name, other.Namespace, other.Name)
		}
	}
	dir, err := s.Cgroup(request.Cgroup)
	if err != nil {
		return err
	}
	driver, err := s.Driver()
	if err != nil {
		return err
	}
	wanted := gpu.MemoryLimits{Hard: uint64(max(memory, 0))}
	if err := driver.SetMemoryLimits(ctx, result.GPUUUID, dir, wanted); err != nil {
		return err
	}
	limits, err := driver.MemoryLimits(ctx, result.GPUUUID, dir)
	if err != nil {
		return err
	}
	if limits != wanted {
		return fmt.Errorf("the driver reports a soft limit of %d and a hard limit of %d bytes on GPU %s, and not %d and %d as they were set",
			limits.Soft, limits.Hard, result.GPUUUID, wanted.Soft, wanted.Hard)
	}
	return nil
}

// share finds the claim of a device with its result and the memory of its containers.
func (s Server) share(of protocol.LimitedDevice) (claim checkpoint.Claim, result *checkpoint.Result, memory int64, err error) {
	record, err := s.Record(of.Claim)
	if err != nil {
		return claim, nil, 0, err
	}
	if result, memory, err = shareOf(record, of.Device); err != nil {
		err = fmt.Errorf("claim %s/%s: %w", record.Claim.Namespace, record.Claim.Name, err)
	}
	return record.Claim, result, memory, err
}

// shareOf finds the result of a prepared claim by the name of its CDI device, and the memory of its containers: a cgroup has one limit per
// GPU, so it is the memory of all shares of the claim on that GPU.
func shareOf(r *checkpoint.Record, device string) (*checkpoint.Result, int64, error) {
	at := slices.Index(r.CDI.Devices, device)
	switch {
	case r.State != checkpoint.Done:
		return nil, 0, errors.New("it is not prepared")
	case at < 0 || at >= len(r.Results):
		return nil, 0, fmt.Errorf("it has no device %q", device)
	}
	memory, err := limitOf(&r.Results[at])
	if err != nil {
		return nil, 0, err
	}
	if memory == 0 {
		return nil, 0, fmt.Errorf("device %q has no memory of its own", device)
	}
	for i := range r.Results {
		if i == at || r.Results[i].GPUUUID != r.Results[at].GPUUUID {
			continue
		}
		more, err := limitOf(&r.Results[i])
		if err != nil {
			return nil, 0, err
		}
		memory += more
	}
	return &r.Results[at], memory, nil
}
