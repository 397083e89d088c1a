package mpsd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
)

const (
	// bodyLimit limits the body of a request, in bytes.
	bodyLimit = 64 << 10
	// longestWait is the longest time that a request waits for a change.
	longestWait = 30 * time.Second
)

// handler serves the requests of peers that run as root.
func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1", s.getInfo)
	mux.HandleFunc("GET /v1/daemons", s.getDaemons)
	mux.HandleFunc("PUT /v1/daemons/{id}", s.putDaemon)
	mux.HandleFunc("DELETE /v1/daemons/{id}", s.deleteDaemon)
	mux.HandleFunc("GET /v1/daemons/{id}/limits", s.getLimits)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("the MPS service of version %s does not support %s %s", s.Version, r.Method, r.URL.Path))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkPeer(r.Context()); err != nil {
			refuse(w, http.StatusForbidden, err.Error())
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit)
		mux.ServeHTTP(w, r)
	})
}

func (s *Service) getInfo(w http.ResponseWriter, _ *http.Request) {
	info := client.Info{Version: s.Version}
	driver, err := s.driver()
	info.Driver = driver.root.Version
	if err != nil {
		info.Error = err.Error()
	}
	answer(w, info, nil)
}

func (s *Service) getDaemons(w http.ResponseWriter, r *http.Request) {
	after := int64(0)
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("after must be an integer, got %q", text))
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), longestWait)
	defer cancel()
	daemons, revision := s.List(ctx, after)
	answer(w, client.List{Daemons: daemons, Revision: revision}, nil)
}

func (s *Service) putDaemon(w http.ResponseWriter, r *http.Request) {
	id, ok := requestedID(w, r)
	if !ok {
		return
	}
	var spec gpu.MPSDaemonSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		refuse(w, http.StatusBadRequest, "invalid spec of an MPS control daemon: "+err.Error())
		return
	}
	if problem := checkSpec(spec); problem != "" {
		refuse(w, http.StatusBadRequest, problem)
		return
	}
	var daemon gpu.MPSDaemon
	var err error
	// The service completes a request even if the client is gone: the client repeats it.
	ctx := context.WithoutCancel(r.Context())
	switch query := r.URL.Query(); {
	case query.Get("limits") == "restore":
		daemon, err = s.RestoreLimits(ctx, id, spec)
	case query.Get("unused") == "true":
		daemon, err = s.StartNew(ctx, id, spec)
	default:
		daemon, err = s.Ensure(ctx, id, spec, query.Get("server") != "false")
	}
	answer(w, daemon, err)
}

func (s *Service) deleteDaemon(w http.ResponseWriter, r *http.Request) {
	if id, ok := requestedID(w, r); ok {
		answer(w, nil, s.Stop(context.WithoutCancel(r.Context()), id))
	}
}

func (s *Service) getLimits(w http.ResponseWriter, r *http.Request) {
	if id, ok := requestedID(w, r); ok {
		limits, err := s.Limits(context.WithoutCancel(r.Context()), id)
		answer(w, limits, err)
	}
}

// requestedID returns the ID in the path, or refuses an invalid one.
func requestedID(w http.ResponseWriter, r *http.Request) (gpu.MPSDaemonID, bool) {
	id := gpu.MPSDaemonID(r.PathValue("id"))
	if !validID(id) {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the ID of an MPS control daemon must consist of lower case letters, digits and dashes, got %q", id))
		return "", false
	}
	return id, true
}

// checkSpec describes an invalid field, empty if the spec is valid.
func checkSpec(spec gpu.MPSDaemonSpec) string {
	for _, c := range spec.Device {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '/' {
			return fmt.Sprintf("device must be the UUID of a GPU or MIG device, got %q", spec.Device)
		}
	}
	switch {
	case spec.Device == "":
		return "device is required: the UUID of a GPU or MIG device"
	case spec.MemoryMiB < 0:
		return fmt.Sprintf("memoryMiB must be greater than or equal to 0, got %d", spec.MemoryMiB)
	case spec.ActiveThreadPercentage < 0 || spec.ActiveThreadPercentage > noPercentage:
		return fmt.Sprintf("activeThreadPercentage must be between 0 and 100, got %d", spec.ActiveThreadPercentage)
	case spec.ShmBytes <= 0:
		return fmt.Sprintf("shmBytes must be greater than 0, got %d", spec.ShmBytes)
	default:
		return ""
	}
}

// answer writes a value or an error; nothing for a nil value.
func answer(w http.ResponseWriter, value any, err error) {
	status := http.StatusOK
	if err != nil {
		status, value = failure(err)
	}
	if value == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the peer may be gone
}

// refuse answers an invalid request.
func refuse(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(client.Failure{Error: sentence}) // the peer may be gone
}

// failure converts an error to an answer.
func failure(err error) (status int, f client.Failure) {
	f.Error = err.Error()
	if clients, ok := errors.AsType[*gpu.MPSClientsError](err); ok {
		f.Kind, f.PIDs = client.KindClients, clients.PIDs
		return http.StatusConflict, f
	}
	if unsupported, ok := errors.AsType[*gpu.UnsupportedError](err); ok {
		f.Kind, f.Feature, f.Needs = client.KindUnsupported, unsupported.Feature, unsupported.Needs
		return http.StatusNotImplemented, f
	}
	switch {
	case errors.Is(err, gpu.ErrInUse):
		f.Kind = client.KindUnstoppable
		return http.StatusConflict, f
	case errors.Is(err, gpu.ErrNotFound):
		f.Kind = client.KindNotFound
		return http.StatusNotFound, f
	case errors.Is(err, gpu.ErrDriverNotLoaded):
		f.Kind = client.KindDriver
	case errors.Is(err, gpu.ErrTimeout):
		f.Kind = client.KindTimeout
	}
	return http.StatusInternalServerError, f
}
